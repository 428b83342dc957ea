"""The search for the optimal plan of one problem."""
