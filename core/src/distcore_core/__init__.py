"""What every distcore plugin stands on: roles, hooks, discovery, config documents, errors,
progress, atomic files."""
