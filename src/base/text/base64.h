/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 as in RFC 4648 section 4, in one piece: with padding, without line ends. */
#ifndef RDZV_BASE_TEXT_BASE64_H
#define RDZV_BASE_TEXT_BASE64_H

#include "base/buf.h"

/* Both put the result behind what is in `out`. False: no memory. */
bool base64_encode(rdzv_bytes bytes, struct buf *out);

/* *valid tells whether the text is base64; where it is not, `out` has what it had. */
bool base64_decode(rdzv_bytes text, struct buf *out, bool *valid);

/* The same into a value of its own, which is written only where the text is base64. */
bool base64_decode_value(rdzv_bytes text, rdzv_value *out, bool *valid);

#endif
