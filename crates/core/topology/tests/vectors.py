"""Makes tests/vectors.txt: random graphs and what NetworkX finds in them, an implementation that is not ours.

    python3 crates/core/topology/tests/vectors.py > crates/core/topology/tests/vectors.txt        # with networkx 3

One line a graph: nodes | a-b-cost of each line | a-b-cost of each link in one direction | costs of the 8 shortest
loopless paths from node 0 to node 1 | link connectivity | node connectivity | least cost of as many link-disjoint
paths as there are. No two links lead from one node to the same other one, so that NetworkX counts paths as we do.
"""

import itertools
import random

import networkx as nx

GRAPHS = 1000
SHORTEST = 8


def graph(draw):
    nodes = draw.randint(4, 16)
    pairs = list(itertools.combinations(range(nodes), 2))
    draw.shuffle(pairs)
    lines = [(a, b, draw.randint(1, 9)) for a, b in pairs[: draw.randint(nodes - 1, 3 * nodes)]]
    rest = pairs[len(lines) :]
    links = [(*draw.sample(pair, 2), draw.randint(1, 9)) for pair in rest[: draw.randint(0, nodes)]]
    made = nx.DiGraph()
    made.add_nodes_from(range(nodes))
    for a, b, cost in lines:
        made.add_edge(a, b, cost=cost, capacity=1)
        made.add_edge(b, a, cost=cost, capacity=1)
    for a, b, cost in links:
        made.add_edge(a, b, cost=cost, capacity=1)
    return made, lines, links


def node_connectivity(made):
    """Of 0 and 1, where a link between them counts as one more path, which NetworkX leaves out."""
    without = made.copy()
    direct = without.has_edge(0, 1)
    if direct:
        without.remove_edge(0, 1)
    # It refuses neighbours; there are none left in this direction, but there may be in the other.
    if without.has_edge(1, 0):
        without.remove_edge(1, 0)
    return nx.connectivity.local_node_connectivity(without, 0, 1) + direct


def line(draw):
    made, lines, links = graph(draw)
    try:
        paths = itertools.islice(nx.shortest_simple_paths(made, 0, 1, weight="cost"), SHORTEST)
        costs = [nx.path_weight(made, path, "cost") for path in paths]
    except nx.NetworkXNoPath:
        costs = []
    connectivity = nx.connectivity.local_edge_connectivity(made, 0, 1)
    flow = nx.max_flow_min_cost(made, 0, 1, capacity="capacity", weight="cost")
    cost = nx.cost_of_flow(made, flow, weight="cost")
    shown = [" ".join("-".join(map(str, link)) for link in some) for some in (lines, links)]
    numbers = " ".join(map(str, costs))
    fields = (len(made), *shown, numbers, connectivity, node_connectivity(made), cost)
    return "|".join(map(str, fields))


if __name__ == "__main__":
    draw = random.Random(16)
    for _ in range(GRAPHS):
        print(line(draw))
