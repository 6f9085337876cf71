/* SPDX-License-Identifier: MIT */
/* Typed hyper-parameters, the same for every form of checkpoint. */
#include "format/source.h"

#include "format/aligned.h"
#include "format/checkpoint.h"
#include "format/gguf_source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static mf_status open_form(const mf_allocator *a, const char *path, uint32_t packed_bits,
                           mf_source **out, mf_error *error)
{
    if (mf_aligned_is_there(path))
        return mf_aligned_open(a, path, out, error);
    char file[MF_MAX_PATH];
    bool is_gguf;
    MF_TRY(mf_gguf_locate(path, file, sizeof file, &is_gguf, error));
    if (is_gguf)
        return mf_gguf_source_open(a, file, out, error);
    return mf_checkpoint_open(a, path, packed_bits, out, error);
}

mf_status mf_source_open(const mf_allocator *a, const char *path, uint32_t packed_bits,
                         mf_source **out, mf_error *error)
{
    mf_source *source;
    MF_TRY(open_form(a, path, packed_bits, &source, error));
    /* here, for every form: whoever asks for bits would take others for those */
    if (packed_bits != 0 && (source->form == NULL || strcmp(source->form, "packed") != 0)) {
        mf_source_close(&source);
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "%s: packed_expert_bits is %u, but the model is not in the packed form",
                       path, packed_bits);
    }
    *out = source;
    return MF_OK;
}

void mf_source_close(mf_source **source)
{
    if (*source != NULL)
        (*source)->ops->close(*source);
    *source = NULL;
}

/* The part's entry; where there is no room for another, the last one of its kind, or the last. */
static mf_left_part *left_part(mf_source *source, const char *what, const char *names, size_t n)
{
    mf_left_part *of_kind = NULL;
    for (uint32_t i = 0; i < source->n_left; i++) {
        mf_left_part *part = &source->left[i];
        if (strcmp(part->what, what) != 0)
            continue;
        of_kind = part;
        if (strlen(part->names) == n && memcmp(part->names, names, n) == 0)
            return part;
    }
    if (source->n_left == MF_LEFT_PARTS)
        return of_kind != NULL ? of_kind : &source->left[MF_LEFT_PARTS - 1];
    mf_left_part *part = &source->left[source->n_left++];
    part->what = what;
    memcpy(part->names, names, n);
    return part;
}

void mf_source_leave_out(mf_source *source, const mf_tensor *tensor, const char *what,
                         const char *names, size_t n_names)
{
    const size_t most = sizeof source->left[0].names - 1;
    mf_left_part *part = left_part(source, what, names, n_names < most ? n_names : most);
    part->n_tensors++;
    part->n_bytes += tensor->n_bytes;
}

static mf_hparam_value get(const mf_source *source, const char *name, uint32_t index)
{
    mf_hparam_value value = {0};
    source->ops->hparam(source, name, index, &value);
    return value;
}

mf_status mf_hparam_fail(const mf_source *source, const char *name, mf_status code, mf_error *error,
                         const char *format, ...)
{
    char rest[320];
    va_list args;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    const mf_hparam_value value = get(source, name, MF_HPARAM_WHOLE);
    return mf_fail(error, code, "%s: field %s %s", source->hparam_path, value.field, rest);
}

const char *mf_hparam_either(const mf_source *source, const char *name, const char *other)
{
    const bool has_name = get(source, name, MF_HPARAM_WHOLE).kind != MF_HPARAM_ABSENT;
    const bool has_other = get(source, other, MF_HPARAM_WHOLE).kind != MF_HPARAM_ABSENT;
    return has_other && !has_name ? other : name;
}

mf_status mf_hparam_u32_or(const mf_source *source, const char *name, uint32_t fallback,
                           mf_range range, uint32_t *out, mf_error *error)
{
    const mf_hparam_value v = get(source, name, MF_HPARAM_WHOLE);
    if (v.kind == MF_HPARAM_ABSENT) {
        *out = fallback;
        return MF_OK;
    }
    bool good = v.kind == MF_HPARAM_NUMBER && v.number >= range.min && v.number <= range.max;
    if (!good || v.number != (double)(uint32_t)v.number)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error,
                              "is not a whole number from %.0f to %.0f", range.min, range.max);
    *out = (uint32_t)v.number;
    return MF_OK;
}

mf_status mf_hparam_u32(const mf_source *source, const char *name, mf_range range, uint32_t *out,
                        mf_error *error)
{
    if (get(source, name, MF_HPARAM_WHOLE).kind == MF_HPARAM_ABSENT)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error, "is missing");
    return mf_hparam_u32_or(source, name, 0, range, out, error);
}

mf_status mf_hparam_double_or(const mf_source *source, const char *name, double fallback,
                              mf_range range, double *out, mf_error *error)
{
    const mf_hparam_value v = get(source, name, MF_HPARAM_WHOLE);
    bool good = v.kind == MF_HPARAM_NUMBER && v.number >= range.min && v.number <= range.max;
    if (v.kind != MF_HPARAM_ABSENT && !good)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error, "is not a number from %g to %g",
                              range.min, range.max);
    *out = v.kind == MF_HPARAM_ABSENT ? fallback : v.number;
    return MF_OK;
}

mf_status mf_hparam_bool_or(const mf_source *source, const char *name, bool fallback, bool *out,
                            mf_error *error)
{
    const mf_hparam_value v = get(source, name, MF_HPARAM_WHOLE);
    if (v.kind != MF_HPARAM_ABSENT && v.kind != MF_HPARAM_BOOL)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error, "is not true or false");
    *out = v.kind == MF_HPARAM_ABSENT ? fallback : v.boolean;
    return MF_OK;
}

mf_status mf_hparam_string(const mf_source *source, const char *name, const char **out,
                           mf_error *error)
{
    const mf_hparam_value v = get(source, name, MF_HPARAM_WHOLE);
    if (v.kind != MF_HPARAM_ABSENT && v.kind != MF_HPARAM_STRING)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error, "is not a string");
    *out = v.kind == MF_HPARAM_ABSENT ? NULL : v.string;
    return MF_OK;
}

mf_status mf_hparam_list(const mf_source *source, const char *name, uint32_t *out, mf_error *error)
{
    const mf_hparam_value v = get(source, name, MF_HPARAM_WHOLE);
    if (v.kind != MF_HPARAM_ABSENT && v.kind != MF_HPARAM_LIST)
        return mf_hparam_fail(source, name, MF_ERR_FORMAT, error, "is not a list");
    *out = v.kind == MF_HPARAM_ABSENT ? MF_HPARAM_WHOLE : v.n_elements;
    return MF_OK;
}

const char *mf_hparam_element(const mf_source *source, const char *name, uint32_t index)
{
    const mf_hparam_value v = get(source, name, index);
    return v.kind == MF_HPARAM_STRING ? v.string : NULL;
}
