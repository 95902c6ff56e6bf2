for LAYERS in 12 24; do
  torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size 64
done
