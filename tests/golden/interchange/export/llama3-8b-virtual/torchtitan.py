# MODULE=<this module> CONFIG=llama3_8b_virtual NGPU=8 ./run_train.sh, on 1 x 8 GPUs
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_8b_virtual() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry("8B")
    config.training = TrainingConfig(
        num_tokens_per_microbatch_per_dp_rank=8192,
        num_tokens_per_train_step=65536,
        max_context_length=8192,
        max_norm=1,
        enable_cpu_offload=False,
        mixed_precision_param="bfloat16",
    )
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=1,
        tensor_parallel_degree=4,
        enable_sequence_parallel=True,
        context_parallel_degree=1,
        pipeline_parallel_degree=2,
        pipeline_parallel_schedule="Interleaved1F1B",
        num_pp_microbatches=8,
        pipeline_parallel_layers_per_stage=4,
        pipeline_parallel_first_stage_less_layers=0,
        pipeline_parallel_last_stage_less_layers=0,
    )
    config.activation_checkpoint = SelectiveAC.Config()
    return config
