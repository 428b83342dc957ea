"""The certificate authority of a fleet, and credentials of stores."""
