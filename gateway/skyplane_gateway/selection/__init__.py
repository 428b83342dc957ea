"""Which objects are copied, to which keys, in which order, under which precondition.

Uses no store: the lead and dry runs apply it to their listings.
"""
