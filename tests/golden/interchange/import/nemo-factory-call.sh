nemo llm pretrain --factory "llama3_70b(num_nodes=8, num_gpus_per_node=8, name=run)" data.micro_batch_size=2
