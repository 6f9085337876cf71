/* SPDX-License-Identifier: MIT */
/* Values of JSON. */
#ifndef MF_TEXT_JINJA_JSON_H
#define MF_TEXT_JINJA_JSON_H

#include "format/json.h"
#include "text/jinja/jinja_value.h"

#include <math.h>

/* A copy. is_foreign: all its strings are marked as what users or tools wrote. */
mf_jval mf_j_of_json(mf_jrun *j, yyjson_val *json, bool is_foreign);

#endif
