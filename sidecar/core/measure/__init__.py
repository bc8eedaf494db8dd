"""What is counted of one app, and what the counts say: window, results, success rate, usual errors, weight."""
