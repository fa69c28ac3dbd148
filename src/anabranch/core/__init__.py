"""What a pipeline is, in plain Python: declarations, graph, plan, epochs. Standard library only."""
