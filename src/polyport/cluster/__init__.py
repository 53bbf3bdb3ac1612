"""Floor 5: the other processes, on NATS (DESIGN section 7). `Cluster` is what an App is given; nothing else is for outside.

Built on the feed of `runs`, which knows it only as `ports.peers.Peers`. The session store stays the record of what is true.
"""

from polyport.cluster.peers import Cluster as Cluster
