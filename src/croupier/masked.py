"""Masked sums for frameworks with a way of their own to carry reports: the public way to `croupier.service.wire.masked`.

A client makes a report (`masked_report`), one party adds reports up (`MaskedTotal`), another one opens the sum of their masks
(`open_masks`). Neither of the two sees a client's counts. docs/flower.md shows all three at work.
"""

from .service.wire.documents import WireError
from .service.wire.masked import BadEnvelopesError, MaskedTotal, mask_key, masked_report, open_masks, public_mask_key

__all__ = ["BadEnvelopesError", "MaskedTotal", "WireError", "mask_key", "masked_report", "open_masks", "public_mask_key"]
