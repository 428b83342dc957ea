"""The command `skyplane-orch`: thin verbs over `Client`, and what a terminal needs."""
