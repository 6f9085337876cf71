/* SPDX-License-Identifier: MIT */
/* config.json fields and quantisation. */
#include "format/config.h"

#include <stdio.h>
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)8 << 20)
#define ROPE "rope."

static bool is_absent(yyjson_val *value)
{
    return value == NULL || yyjson_is_null(value);
}

/* The object `field` of `parent`; NULL if absent. */
static mf_status find_object(const mf_json *json, yyjson_val *parent, const char *field,
                             yyjson_val **out, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(parent, field);
    if (!is_absent(value) && !yyjson_is_obj(value))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not an object", json->path, field);
    *out = is_absent(value) ? NULL : value;
    return MF_OK;
}

static mf_status find_quantization(mf_config *c, mf_error *error)
{
    static const char *const names[] = {"quantization", "quantization_config"};
    yyjson_val *const places[] = {c->top, c->text};
    for (size_t i = 0; i < 4 && c->quantization == NULL; i++) {
        c->quantization_name = names[i % 2];
        MF_TRY(find_object(&c->json, places[i / 2], names[i % 2], &c->quantization, error));
    }
    return MF_OK;
}

/* The two names are one thing. Where both are given and differ, the publishers' code takes one and
 * drops the other; rather than guess which was meant, that is refused. */
static mf_status find_rope(mf_config *c, mf_error *error)
{
    yyjson_val *found[2] = {NULL, NULL};
    static const char *const names[2] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < 2; i++) {
        MF_TRY(find_object(&c->json, c->text, names[i], &found[i], error));
        if (found[i] == NULL)
            MF_TRY(find_object(&c->json, c->top, names[i], &found[i], error));
        if (yyjson_obj_size(found[i]) == 0)
            found[i] = NULL;
    }
    if (found[0] != NULL && found[1] != NULL && !yyjson_equals(found[0], found[1]))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: fields rope_parameters and rope_scaling are both given and differ; "
                       "put all into rope_parameters",
                       c->json.path);
    c->rope = found[0] != NULL ? found[0] : found[1];
    c->rope_name = names[found[0] == NULL];
    return MF_OK;
}

mf_status mf_config_from_json(const mf_json *json, bool is_manifest, mf_config *out,
                              mf_error *error)
{
    yyjson_val *top = is_manifest ? yyjson_obj_get(json->root, "config") : json->root;
    if (!yyjson_is_obj(top))
        return mf_fail(error, MF_ERR_FORMAT, "%s: %s", json->path,
                       is_manifest ? "field config is missing or not an object"
                                   : "not a JSON object");
    mf_config config = {.json = *json, .is_manifest = is_manifest, .top = top};
    MF_TRY(mf_json_check_names(json, error));
    MF_TRY(find_object(json, top, "text_config", &config.text, error));
    if (config.text == NULL)
        config.text = top;
    MF_TRY(find_quantization(&config, error));
    MF_TRY(find_rope(&config, error));
    *out = config;
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

/* `a.b`: field b of the object a. */
static yyjson_val *find(const mf_config *c, const char *field)
{
    const char *dot = strchr(field, '.');
    if (dot != NULL) {
        const size_t n = (size_t)(dot - field);
        yyjson_val *object = yyjson_obj_getn(c->text, field, n);
        object = is_absent(object) ? yyjson_obj_getn(c->top, field, n) : object;
        return yyjson_obj_get(object, dot + 1);
    }
    yyjson_val *value = yyjson_obj_get(c->text, field);
    yyjson_val *of_top = yyjson_obj_get(c->top, field);
    return is_absent(value) && of_top != NULL ? of_top : value;
}

bool mf_config_disagrees(const mf_config *c, const char *field)
{
    yyjson_val *of_text = yyjson_obj_get(c->text, field), *of_top = yyjson_obj_get(c->top, field);
    return !is_absent(of_text) && !is_absent(of_top) && !yyjson_equals(of_text, of_top);
}

/* The family stands at the top; text_config's model_type is that of a part. */
static yyjson_val *find_family(const mf_config *c)
{
    yyjson_val *value = yyjson_obj_get(c->top, "model_type");
    return is_absent(value) ? yyjson_obj_get(c->text, "model_type") : value;
}

/* In the rotation's object; some fields may also stand beside it. Writes how the file calls it. */
static yyjson_val *find_in_rope(const mf_config *c, const char *name, char *field, size_t capacity)
{
    static const char *const beside[] = {"rope_theta", "partial_rotary_factor",
                                         "original_max_position_embeddings"};
    if (strcmp(name, "theta") == 0)
        name = "rope_theta";
    if (strcmp(name, "type") == 0 && !is_absent(yyjson_obj_get(c->rope, "rope_type")))
        name = "rope_type";
    const char *dot = strchr(name, '.'); /* within an object of its own: DeepSeek-V4's */
    yyjson_val *object = c->rope;
    if (dot != NULL)
        object = yyjson_obj_getn(c->rope, name, (size_t)(dot - name));
    yyjson_val *value = yyjson_obj_get(object, dot != NULL ? dot + 1 : name);
    if (c->rope != NULL)
        snprintf(field, capacity, "%s.%s", c->rope_name, name);
    for (size_t i = 0; is_absent(value) && i < sizeof beside / sizeof *beside; i++) {
        if (strcmp(name, beside[i]) != 0)
            continue;
        value = find(c, name);
        snprintf(field, capacity, "%s", name);
    }
    return value;
}

/* The packed form's manifest names no family; it was only ever written for these two. */
static const char *family_of_manifest(const mf_config *c)
{
    return is_absent(find(c, "n_routed_experts")) ? "qwen3_5_moe" : "deepseek_v3";
}

static void set_value(yyjson_val *value, mf_hparam_value *out)
{
    out->is_null = yyjson_is_null(value);
    if (is_absent(value))
        return;
    out->kind = MF_HPARAM_OTHER;
    if (yyjson_is_bool(value))
        out->kind = MF_HPARAM_BOOL;
    else if (yyjson_is_num(value))
        out->kind = MF_HPARAM_NUMBER;
    else if (yyjson_is_str(value))
        out->kind = MF_HPARAM_STRING;
    else if (yyjson_is_arr(value))
        out->kind = MF_HPARAM_LIST;
    out->boolean = yyjson_is_true(value);
    out->number = yyjson_get_num(value);
    out->string = yyjson_get_str(value);
    out->n_elements = (uint32_t)yyjson_arr_size(value);
}

void mf_config_get(const mf_config *c, const char *name, uint32_t index, mf_hparam_value *out)
{
    yyjson_val *value;
    *out = (mf_hparam_value){.kind = MF_HPARAM_ABSENT};
    snprintf(out->field, sizeof out->field, "%s", name);
    if (strncmp(name, ROPE, strlen(ROPE)) == 0)
        value = find_in_rope(c, name + strlen(ROPE), out->field, sizeof out->field);
    else if (strcmp(name, "model_type") == 0)
        value = find_family(c);
    else
        value = find(c, name);
    if (index != MF_HPARAM_WHOLE)
        value = yyjson_arr_get(value, index);
    set_value(value, out);
    if (c->is_manifest && out->kind == MF_HPARAM_ABSENT && strcmp(name, "model_type") == 0) {
        out->kind = MF_HPARAM_STRING;
        out->string = family_of_manifest(c);
    }
}

/* A whole number up to max that an object of the quantisation may state. */
static mf_status read_count(const mf_config *c, yyjson_val *object, const char *name,
                            const char *field, uint32_t *out, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(object, field);
    if (is_absent(value))
        return MF_OK;
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value) || !(number >= 1.0 && number <= 65536.0) ||
        number != (double)(uint32_t)number)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: %s is not a whole number from 1 to 65536",
                       c->json.path, name, field);
    *out = (uint32_t)number;
    return MF_OK;
}

/* names end with NULL */
static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

static mf_status read_quantization(const mf_config *c, yyjson_val *object, const char *name,
                                   mf_quantization *out, mf_error *error)
{
    static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4", NULL};
    yyjson_val *mode = yyjson_obj_get(object, "mode");
    if (!is_absent(mode) && !yyjson_is_str(mode))
        return mf_fail(error, MF_ERR_FORMAT, "%s: quantization of %s: mode is not a string",
                       c->json.path, name);
    if (!is_absent(mode))
        out->mode = yyjson_get_str(mode);
    if (!is_absent(mode) && !is_one_of(out->mode, modes))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: quantization of %s: mode %s is not supported (only affine, mxfp4, "
                       "mxfp8 and nvfp4)",
                       c->json.path, name, out->mode);
    MF_TRY(read_count(c, object, name, "bits", &out->bits, error));
    return read_count(c, object, name, "group_size", &out->group, error);
}

mf_status mf_config_quantization(const mf_config *c, const char *name, mf_quantization *out,
                                 mf_error *error)
{
    mf_quantization result = {0};
    if (c->quantization != NULL) {
        MF_TRY(read_quantization(c, c->quantization, name, &result, error));
        yyjson_val *own = yyjson_obj_get(c->quantization, name);
        if (yyjson_is_obj(own)) {
            /* MLX takes all of it from there, or affine's defaults: nothing of the general one */
            result.bits = result.group = 0;
            result.mode_is_general = is_absent(yyjson_obj_get(own, "mode"));
            MF_TRY(read_quantization(c, own, name, &result, error));
        } else if (yyjson_is_false(own))
            result.disabled = true;
        else if (!is_absent(own) && !yyjson_is_true(own))
            return mf_fail(error, MF_ERR_FORMAT, "%s: quantization.%s is no object, true or false",
                           c->json.path, name);
    }
    *out = result;
    return MF_OK;
}

/* A string that the quantisation's object may have; NULL if absent. */
static mf_status read_string(const mf_config *c, const char *field, const char **out,
                             mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(c->quantization, field);
    if (!is_absent(value) && !yyjson_is_str(value))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s.%s is not a string", c->json.path,
                       c->quantization_name, field);
    *out = yyjson_get_str(value);
    return MF_OK;
}

/* Fields of the object that must have one of the values, where they are given. */
static mf_status check_field(const mf_config *c, const char *field, const char *const *values,
                             const char *supported, mf_error *error)
{
    const char *value = NULL;
    MF_TRY(read_string(c, field, &value, error));
    if (value == NULL || is_one_of(value, values))
        return MF_OK;
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: field %s.%s is %s; supported are %s",
                   c->json.path, c->quantization_name, field, value, supported);
}

/* Blocks of 128 x 128, or none: a scale for each row or for the whole. */
static mf_status check_fp8(const mf_config *c, mf_error *error)
{
    static const char *const formats[] = {"e4m3", NULL};
    MF_TRY(check_field(c, "fmt", formats, "e4m3", error));
    yyjson_val *block = yyjson_obj_get(c->quantization, "weight_block_size");
    if (is_absent(block))
        return MF_OK;
    double n_rows = yyjson_get_num(yyjson_arr_get(block, 0));
    double n_cols = yyjson_get_num(yyjson_arr_get(block, 1));
    if (yyjson_arr_size(block) != 2 || n_rows != 128 || n_cols != 128)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: field %s.weight_block_size is [%g, %g]; only "
                       "[128, 128] is supported",
                       c->json.path, c->quantization_name, n_rows, n_cols);
    return MF_OK;
}

/* A switch that the object may have; what it has where it is absent is given. */
static mf_status read_switch(const mf_config *c, const char *field, bool *out, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(c->quantization, field);
    if (!is_absent(value) && !yyjson_is_bool(value))
        return mf_fail(error, MF_ERR_FORMAT, "%s: field %s.%s is not true or false", c->json.path,
                       c->quantization_name, field);
    if (!is_absent(value))
        *out = yyjson_is_true(value);
    return MF_OK;
}

/* Zeros are not read where the config says that all are the middle, nor indexes where it says that
 * columns are in order: unless it has exceptions, whatever they say. */
mf_status mf_config_packing(const mf_config *c, mf_config_packed *out, mf_error *error)
{
    const char *method = NULL, *format = NULL;
    mf_config_packed p = {.packing = MF_PACKING_GPTQ, .has_zeros = true, .has_index = true};
    bool is_symmetric = false, is_reordered = true, has_points = true;
    if (c->quantization != NULL)
        MF_TRY(read_string(c, "quant_method", &method, error));
    if (method == NULL)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: there are tensors called qweight, and no field "
                       "quantization_config.quant_method says of what kind",
                       c->json.path);
    if (strcmp(method, "awq") == 0) {
        MF_TRY(read_switch(c, "zero_point", &has_points, error));
        p.packing = MF_PACKING_AWQ;
        p.has_index = false;
        if (!has_points)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: field %s.zero_point is false; only true is supported", c->json.path,
                           c->quantization_name);
    } else {
        MF_TRY(read_string(c, "checkpoint_format", &format, error));
        MF_TRY(read_switch(c, "sym", &is_symmetric, error));
        MF_TRY(read_switch(c, "desc_act", &is_reordered, error));
        if (format != NULL && strcmp(format, "gptq_v2") == 0)
            p.packing = MF_PACKING_GPTQ_V2;
        if (is_absent(yyjson_obj_get(c->quantization, "dynamic"))) {
            p.has_zeros = !is_symmetric;
            p.has_index = is_reordered;
        }
    }
    *out = p;
    return MF_OK;
}

mf_status mf_config_check_quantization(const mf_config *c, mf_error *error)
{
    static const char *const methods[] = {
        "fp8", "compressed-tensors", "modelopt", "mxfp4", "gptq", "awq", NULL};
    static const char *const packings[] = {
        "pack-quantized",  "int-quantized",        "float-quantized",
        "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
        "mxfp8-quantized", "mixed-precision",      NULL};
    static const char *const gptq_formats[] = {"gptq", "gptq_v2", NULL};
    static const char *const awq_versions[] = {"gemm", "GEMM", NULL};
    static const char *const algorithms[] = {"NVFP4", "FP8", NULL};
    const char *method = NULL;
    MF_TRY(read_string(c, "quant_method", &method, error));
    if (method == NULL)
        return MF_OK;
    MF_TRY(check_field(c, "quant_method", methods,
                       "fp8, compressed-tensors, modelopt, mxfp4, gptq, awq, and MLX's "
                       "quantization",
                       error));
    if (strcmp(method, "mxfp4") == 0)
        return MF_OK;
    if (strcmp(method, "gptq") == 0)
        return check_field(c, "checkpoint_format", gptq_formats, "gptq and gptq_v2", error);
    if (strcmp(method, "awq") == 0)
        return check_field(c, "version", awq_versions, "gemm", error);
    if (strcmp(method, "fp8") == 0)
        return check_fp8(c, error);
    if (strcmp(method, "modelopt") == 0)
        return check_field(c, "quant_algo", algorithms, "NVFP4 and FP8", error);
    return check_field(c, "format", packings,
                       "pack-quantized, int-quantized, float-quantized, naive-quantized, "
                       "nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp8-quantized and "
                       "mixed-precision",
                       error);
}
