echo "see run_recipe.py"
