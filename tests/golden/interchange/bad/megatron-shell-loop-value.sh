HIDDEN=64
for i in 1 2 3; do HIDDEN=$((HIDDEN * 2)); done
torchrun pretrain_gpt.py --num-layers 4 --hidden-size $HIDDEN
