# torchrun of a PyTorch that is older than Python 3.11, which leaves members that are 0 out when it lists a flag.
import sys

import torch.distributed.elastic.multiprocessing.api as api

type.__setattr__(api.Std, "from_str", classmethod(lambda cls, text: cls(int(text))))

from torch.distributed.run import main

sys.argv[0] = "torchrun"
main()
