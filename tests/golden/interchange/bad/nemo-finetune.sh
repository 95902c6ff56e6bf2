nemo llm finetune --factory llama3_8b
