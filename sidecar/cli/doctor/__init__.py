"""``doctor``: looks at settings, surroundings and the job file before they cause trouble."""
