FLAGS="--num-layers 4 --hidden-size 64 --fp16"
FLAGS=${FLAGS/--fp16/--bf16}
torchrun pretrain_gpt.py $FLAGS
