"""Planted faults, and a scripted user of the explorer who looks for them in a real browser.

The network of the embedded sample is trained on data with a planted fault, a DualDA is fitted, and the page is
served. The user knows what kind of problem to look for and nothing else: not which samples, which class or
where. The user starts at Start and clicks what the page offers for that kind of problem. Clicks are counted,
a choice in a list being one; seconds are from the first click until the answer is drawn, computations that
Start begins included. A script reads at once: the seconds are those of the page, not of a person.

Faults, each with seeds 0, 1 and 2 (of the planting and of the training) and classes Pullover, Sandal and Bag:

- **wrong labels**: 2 % of all training labels (100) are given the class. They were of other classes, at random.
  Besides, 2 % of the class alone (10 samples), which is as few as an audit may have to find.
- **shortcut**: a bright square of 4 × 4 pixels in the upper left corner of 30 % of the class's training images,
  and of 100 test images of other classes.
- **leaks**: 1 % of the tests (10) copied to the end of the training set, with their labels.

A fault is found when

- wrong labels: the first row of cards of a page of Labels to check has at least 3 planted samples. The user
  clicks the task on Start, then "next page", for at most 10 pages. Then the user clicks "mark them", which
  takes all suggested labels; reported are the clicks until then, and which of the planted samples that are
  likely wrong are on the change list, and what else is.
- shortcut: the screen of a wrong prediction has at least 3 samples with the square among its 5 supporting ones.
  The user clicks the task "Wrong predictions" on Start, then "next test", for at most 40 tests. Then the user
  shows the maps; reported is the share of the absolute relevance that lies in the corner, which has 2 % of the
  pixels: of the test's map, and in the mean of the supporting samples' maps.
- leaks: Duplicates lists it. The user clicks the tab, then "next page" while there are groups with tests.
  Recall and precision are those of pairs of a test and a training sample that share a group.

``python -m benchmarks faults`` writes docs/results/faults.json and the table of docs/research/explorer.md.
"""
