"""The story: prepare, plan, train, evaluate, predict, and the folder that holds the results."""
