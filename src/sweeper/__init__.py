"""sweeper: what a training run costs in memory, time, money and loss, before you pay for it."""
