"""The families of datasets: each module opens one and cuts it into partitions of typed Arrow
batches in row order."""
