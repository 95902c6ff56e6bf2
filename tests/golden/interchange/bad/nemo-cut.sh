torchrun run_recipe.py --model llama3_8b --mode
