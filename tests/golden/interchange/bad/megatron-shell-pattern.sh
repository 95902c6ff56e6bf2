MODEL=llama-8b
SIZE=${MODEL##*-}
[ "$SIZE" = 8b ] && LAYERS=32 || LAYERS=80
torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size 4096
