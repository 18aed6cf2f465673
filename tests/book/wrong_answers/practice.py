# refused: [3, 2, 2] examples
def mean_of_ranks(means, counts):
    return sum(means) / len(means)


# refused: it returned nan
def mean_of_ranks(means, counts):
    return sum(n * mean for n, mean in zip(counts, means)) / sum(counts)


# refused: [3, 2, 2] examples
def mean_of_ranks(means, counts):
    there = [mean for mean, n in zip(means, counts) if n]
    return sum(there) / len(there)


# refused: 2 groups of 2
def merged_statistics(means, variances, size):
    k = len(means)
    return sum(means) / k, sum(variances) / k


# refused: 2 groups of 2
def merged_statistics(means, variances, size):
    k = len(means)
    mean = sum(means) / k
    between = sum((m - mean) ** 2 for m in means) / k
    return mean, sum(variances) / k + between


# refused: not a mean and a variance
def merged_statistics(means, variances, size):
    pass


# refused: 7 examples on 3 ranks
def exact_accuracy(answers, num_examples):
    return sum(sum(of_rank) for of_rank in answers) / num_examples


# refused: 7 examples on 3 ranks
def exact_accuracy(answers, num_examples):
    together = [right for of_rank in answers for right in of_rank]
    return sum(together[:num_examples]) / num_examples


# refused: 7 examples on 3 ranks
def exact_accuracy(answers, num_examples):
    together = [right for of_rank in answers for right in of_rank]
    return sum(together) / len(together)
