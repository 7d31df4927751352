"""``nonstrict_trace``: a function is run on fakes, and every torch call it makes is written down."""

import torch
from torch.overrides import TorchFunctionMode


class _Record(TorchFunctionMode):
    def __init__(self, capture, known):
        super().__init__()
        self.capture = capture
        self.known = known  # fakes of real tensors by id
        self.lifted = []
        self.calls = []

    def fake(self, value):
        if isinstance(value, torch.Tensor):
            if type(value).__name__ == "Fake":
                return value
            fake = self.known.get(id(value))
            if fake is None:
                fake = self.capture.input(value, None)
                self.known[id(value)] = fake
                self.lifted.append((value, fake))
            return fake
        if type(value) in (list, tuple):
            return type(value)(map(self.fake, value))
        if type(value) is dict:
            return {key: self.fake(item) for key, item in value.items()}
        return value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = self.fake(tuple(args)), self.fake(dict(kwargs or {}))
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result


def run(capture, function, args, kwargs, known):
    """Result, recorded calls, real tensors met with their fakes, and the exception if there was one."""
    record = _Record(capture, known)
    try:
        with record:
            result = capture.call(function, args, kwargs)
    except Exception as error:
        return None, [], [], error
    return result, record.calls, record.lifted, None
