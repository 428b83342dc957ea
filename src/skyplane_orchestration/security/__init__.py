"""The authority of a fleet and the credentials of its stores."""
