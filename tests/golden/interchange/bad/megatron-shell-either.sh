COMMON="--num-layers 4 --hidden-size 64"
if [ "$1" == long ]; then
  torchrun pretrain_gpt.py $COMMON --seq-length 8192
else
  torchrun pretrain_gpt.py $COMMON --seq-length 1024
fi
