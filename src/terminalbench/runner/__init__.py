"""Getting jobs done: preparing a batch, running one Harbor process per profile, keeping what they leave."""
