"""Out of memory, whichever type it comes as.

On the global path PyTorch turns what the plug-in throws into a plain RuntimeError, whose text begins
like that of its own error; a torch.OutOfMemoryError is a type of PyTorch's own libraries, which the
plug-in does not link.
"""

import contextlib

_BEGINNING = "CUDA out of memory."


def is_out_of_memory(error):
    """Whether an exception means that the device is full: this pool's, or PyTorch's own."""
    return isinstance(error, RuntimeError) and str(error).startswith(_BEGINNING)


@contextlib.contextmanager
def raises_out_of_memory():
    """Inside, the pool's error is raised as torch.OutOfMemoryError, for code that catches that."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(str(error)) from error
