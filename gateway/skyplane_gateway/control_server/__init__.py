"""The server of the control API: what each request may do, and what of the gateway it calls."""
