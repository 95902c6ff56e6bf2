TP=$(nvidia-smi -L | wc -l)
ARGS=$(cat args.txt)
torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --tensor-model-parallel-size $TP --bf16 $ARGS
