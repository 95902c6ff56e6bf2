nemo llm pretrain --factory "llama3_8b(num_nodes=2, performance_mode=True)"
