/* SPDX-License-Identifier: MIT */
/* config.json fields and quantisation. */
#include "format/config.h"

#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)64 << 20)

static bool is_absent(yyjson_val *value)
{
    return value == NULL || yyjson_is_null(value);
}

mf_status mf_config_from_json(const mf_json *json, bool is_manifest, mf_config *out,
                              mf_error *error)
{
    yyjson_val *top = is_manifest ? yyjson_obj_get(json->root, "config") : json->root;
    if (!yyjson_is_obj(top))
        return mf_fail(error, MF_ERR_FORMAT, "%s: %s", json->path,
                       is_manifest ? "field config is missing or not an object"
                                   : "not a JSON object");
    yyjson_val *text = yyjson_obj_get(top, "text_config");
    yyjson_val *quantization = yyjson_obj_get(top, "quantization");
    if (!yyjson_is_obj(quantization))
        quantization = yyjson_obj_get(top, "quantization_config");
    if (!yyjson_is_obj(quantization) && yyjson_is_obj(text))
        quantization = yyjson_obj_get(text, "quantization");
    *out = (mf_config){
        .json = *json,
        .top = top,
        .text = yyjson_is_obj(text) ? text : top,
        .quantization = yyjson_is_obj(quantization) ? quantization : NULL,
    };
    return MF_OK;
}

mf_status mf_config_read(const mf_allocator *a, const char *path, bool is_manifest, mf_config *out,
                         mf_error *error)
{
    mf_json json = {0};
    MF_TRY(mf_json_read(a, path, MAX_CONFIG_BYTES, &json, error));
    mf_status status = mf_config_from_json(&json, is_manifest, out, error);
    if (status != MF_OK)
        mf_json_free(&json);
    return status;
}

void mf_config_free(mf_config *config)
{
    mf_json_free(&config->json);
    *config = (mf_config){0};
}

yyjson_val *mf_config_find(const mf_config *config, const char *field)
{
    yyjson_val *value = yyjson_obj_get(config->text, field);
    if (is_absent(value))
        value = yyjson_obj_get(config->top, field);
    return is_absent(value) ? NULL : value;
}

static mf_status check_u32(const mf_config *config, const char *field, yyjson_val *value,
                           uint32_t min, uint32_t max, uint32_t *out, mf_error *error)
{
    if (!yyjson_is_uint(value) || yyjson_get_uint(value) < min || yyjson_get_uint(value) > max)
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not a whole number from %u to %u",
                       config->json.path, field, min, max);
    *out = (uint32_t)yyjson_get_uint(value);
    return MF_OK;
}

mf_status mf_config_u32(const mf_config *config, const char *field, uint32_t min, uint32_t max,
                        uint32_t *out, mf_error *error)
{
    yyjson_val *value = mf_config_find(config, field);
    if (value == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is missing", config->json.path, field);
    return check_u32(config, field, value, min, max, out, error);
}

mf_status mf_config_u32_or(const mf_config *config, const char *field, uint32_t fallback,
                           uint32_t min, uint32_t max, uint32_t *out, mf_error *error)
{
    yyjson_val *value = mf_config_find(config, field);
    if (value == NULL) {
        *out = fallback;
        return MF_OK;
    }
    return check_u32(config, field, value, min, max, out, error);
}

mf_status mf_config_double_or(const mf_config *config, const char *field, double fallback,
                              double min, double max, double *out, mf_error *error)
{
    yyjson_val *value = mf_config_find(config, field);
    if (value == NULL) {
        *out = fallback;
        return MF_OK;
    }
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value) || !(number >= min && number <= max))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not a number from %g to %g",
                       config->json.path, field, min, max);
    *out = number;
    return MF_OK;
}

mf_status mf_config_bool_or(const mf_config *config, const char *field, bool fallback, bool *out,
                            mf_error *error)
{
    yyjson_val *value = mf_config_find(config, field);
    if (value != NULL && !yyjson_is_bool(value))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not true or false", config->json.path,
                       field);
    *out = value == NULL ? fallback : yyjson_get_bool(value);
    return MF_OK;
}

const char *mf_config_string(const mf_config *config, const char *field)
{
    return yyjson_get_str(mf_config_find(config, field));
}

static mf_status read_quantization(const mf_config *config, yyjson_val *object, const char *name,
                                   mf_quantization *out, mf_error *error)
{
    yyjson_val *mode = yyjson_obj_get(object, "mode");
    if (yyjson_is_str(mode) && strcmp(yyjson_get_str(mode), "affine") != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: quantization of %s: mode %s is not supported (only affine)",
                       config->json.path, name, yyjson_get_str(mode));
    yyjson_val *bits = yyjson_obj_get(object, "bits"),
               *group = yyjson_obj_get(object, "group_size");
    if (yyjson_is_uint(bits) && yyjson_get_uint(bits) <= 32)
        out->bits = (uint32_t)yyjson_get_uint(bits);
    if (yyjson_is_uint(group) && yyjson_get_uint(group) <= 65536)
        out->group = (uint32_t)yyjson_get_uint(group);
    return MF_OK;
}

mf_status mf_config_quantization(const mf_config *config, const char *name, mf_quantization *out,
                                 mf_error *error)
{
    mf_quantization result = {0};
    if (config->quantization != NULL) {
        result.declared = true;
        MF_TRY(read_quantization(config, config->quantization, name, &result, error));
        yyjson_val *own = yyjson_obj_get(config->quantization, name);
        if (yyjson_is_obj(own))
            MF_TRY(read_quantization(config, own, name, &result, error));
        else if (yyjson_is_false(own))
            result.disabled = true;
    }
    *out = result;
    return MF_OK;
}

mf_status mf_config_check_quantization(const mf_config *config, mf_error *error)
{
    const char *path = config->json.path;
    const char *method = yyjson_get_str(yyjson_obj_get(config->quantization, "quant_method"));
    if (method == NULL)
        return MF_OK;
    if (strcmp(method, "fp8") != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field quantization_config.quant_method is %s; supported are fp8 and "
                       "MLX's affine quantization",
                       path, method);
    const char *format = yyjson_get_str(yyjson_obj_get(config->quantization, "fmt"));
    if (format != NULL && strcmp(format, "e4m3") != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field quantization_config.fmt is %s; only e4m3 is supported", path,
                       format);
    yyjson_val *block = yyjson_obj_get(config->quantization, "weight_block_size");
    uint64_t n_rows = yyjson_get_uint(yyjson_arr_get(block, 0));
    uint64_t n_cols = yyjson_get_uint(yyjson_arr_get(block, 1));
    if (yyjson_arr_size(block) != 2 || n_rows != 128 || n_cols != 128)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field quantization_config.weight_block_size is [%llu, %llu]; only "
                       "[128, 128] is supported",
                       path, (unsigned long long)n_rows, (unsigned long long)n_cols);
    return MF_OK;
}
