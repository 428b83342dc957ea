"""The nouns: job, plan, fleet, result. Small frozen values, standard library only."""
