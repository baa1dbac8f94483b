"""Exact training: the same bits of the weights for every number of workers.

A global batch is cut into parts, and whatever sums over rows is computed part by part and added
along one fixed tree.
"""
