nemo llm pretrain --factory llama3_8b --yes
nemo llm pretrain --factory llama3_70b --yes
