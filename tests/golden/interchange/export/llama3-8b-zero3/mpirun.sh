mpirun -np 16 --map-by ppr:8:node --bind-to none --hostfile hosts -x MASTER_ADDR="$HEAD_HOST" -x MASTER_PORT=29500 python train.py
