# MODULE=<this module> CONFIG=llama3_8b_zero3 NGPU=16 ./run_train.sh, on 2 x 8 GPUs
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_8b_zero3() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry("8B")
    config.training = TrainingConfig(
        num_tokens_per_microbatch_per_dp_rank=16384,
        num_tokens_per_train_step=524288,
        max_context_length=8192,
        max_norm=1,
        enable_cpu_offload=True,
        mixed_precision_param="bfloat16",
    )
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=16,
        fsdp_reshard_after_forward="always",
        tensor_parallel_degree=1,
        context_parallel_degree=1,
        pipeline_parallel_degree=1,
    )
    config.activation_checkpoint = FullAC.Config()
    return config
