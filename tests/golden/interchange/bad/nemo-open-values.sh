nemo llm pretrain --factory llama3_8b trainer.num_nodes=$NODES trainer.devices=$GPUS data.micro_batch_size=$1
