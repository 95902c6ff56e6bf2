LAYERS=4
export HIDDEN=64
bash -c 'torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN'
