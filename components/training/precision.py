"""In which numbers a job computes."""


def bfloat16(precision: str) -> bool:
    """Whether to compute in bfloat16 (weights stay float32): where asked, or where the hardware multiplies in it."""
    import torch

    if precision == "auto":
        if torch.cuda.is_available():
            return bool(torch.cuda.is_bf16_supported())
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return precision == "bfloat16"
