/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 as in RFC 4648 section 4, in one piece: with padding, without line ends. */
#ifndef RDZV_BASE_TEXT_BASE64_H
#define RDZV_BASE_TEXT_BASE64_H

#include "base/buf.h"

/* Both add the result to the end of `out`. False: no memory. A byte 0, which `len` does not count, follows the text. */
bool base64_encode(rdzv_bytes bytes, struct buf *out);

/* *valid: the text is base64. If it is not, `out` is unchanged. */
bool base64_decode(rdzv_bytes text, struct buf *out, bool *valid);

/* The same into a new value, which is written only if the text is base64. */
bool base64_decode_value(rdzv_bytes text, rdzv_value *out, bool *valid);

#endif
