torchrun run_recipe.py --model llama3_9b --mode pretrain
