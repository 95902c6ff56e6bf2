torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size 64
