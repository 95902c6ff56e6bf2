ARGS="--num-layers 4
if [ $X = 1 ]; then
torchrun pretrain_gpt.py $ARGS
