"""Graph retrieval: linkers that build a graph (links, knn, entities, fields), and systems that walk on it."""
