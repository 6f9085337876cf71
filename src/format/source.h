/* SPDX-License-Identifier: MIT */
/*
 * A model's files as the model's code sees them: hyper-parameters by name, tensors by role, and how
 * experts are laid out. A form of checkpoint implements the vtable; whoever asks knows no file
 * name, no JSON and no tensor's name. Descriptors only: nothing here reads a weight.
 */
#ifndef MF_FORMAT_SOURCE_H
#define MF_FORMAT_SOURCE_H

#include "base/await.h"
#include "format/tensors.h"

/* What a tensor is for. Layouts are the publishers': rows are outputs, the last dimension inputs.
 */
typedef enum mf_role {
    MF_ROLE_EMBED,
    MF_ROLE_HEAD,
    MF_ROLE_FINAL_NORM,
    /* of every layer */
    MF_ROLE_INPUT_NORM,
    MF_ROLE_POST_NORM,
    /* softmax attention */
    MF_ROLE_Q,
    MF_ROLE_K,
    MF_ROLE_V,
    MF_ROLE_O,
    MF_ROLE_Q_NORM,
    MF_ROLE_K_NORM,
    MF_ROLE_Q_BIAS,
    MF_ROLE_K_BIAS,
    MF_ROLE_V_BIAS,
    MF_ROLE_O_BIAS,
    MF_ROLE_SINKS,
    /* linear attention: the input projections apart, or fused key head by key head */
    MF_ROLE_LINEAR_QKV,
    MF_ROLE_LINEAR_Z,
    MF_ROLE_LINEAR_B,
    MF_ROLE_LINEAR_A,
    MF_ROLE_LINEAR_QKVZ,
    MF_ROLE_LINEAR_BA,
    MF_ROLE_LINEAR_CONV, /* [channels, width], with or without a dimension of 1 */
    MF_ROLE_LINEAR_A_LOG,
    MF_ROLE_LINEAR_DT_BIAS,
    MF_ROLE_LINEAR_NORM,
    MF_ROLE_LINEAR_OUT,
    /* latent attention: the up-projection whole, or head by head the transposed key half and the
     * value half */
    MF_ROLE_LATENT_Q_A,
    MF_ROLE_LATENT_Q_A_NORM,
    MF_ROLE_LATENT_Q_B,
    MF_ROLE_LATENT_KV_A,
    MF_ROLE_LATENT_KV_A_NORM,
    MF_ROLE_LATENT_KV_B,
    MF_ROLE_LATENT_K_UP,
    MF_ROLE_LATENT_V_UP,
    /* its indexer */
    MF_ROLE_INDEX_Q,
    MF_ROLE_INDEX_K,
    MF_ROLE_INDEX_WEIGHTS,
    MF_ROLE_INDEX_NORM,
    MF_ROLE_INDEX_NORM_BIAS,
    /* attention to entries, beside roles of softmax and latent attention and of an indexer: keys
     * that are values, the two steps of the output, and what makes entries, and the indexer's */
    MF_ROLE_ENTRY_KV,
    MF_ROLE_ENTRY_KV_NORM,
    MF_ROLE_ENTRY_O_A,
    MF_ROLE_ENTRY_O_B,
    /* values, gates, bias, norm always follow one another */
    MF_ROLE_COMPRESS_KV,
    MF_ROLE_COMPRESS_GATE,
    MF_ROLE_COMPRESS_BIAS,
    MF_ROLE_COMPRESS_NORM,
    MF_ROLE_INDEX_COMPRESS_KV,
    MF_ROLE_INDEX_COMPRESS_GATE,
    MF_ROLE_INDEX_COMPRESS_BIAS,
    MF_ROLE_INDEX_COMPRESS_NORM,
    /* what mixes the streams of a residual: matrix, base and scale follow one another */
    MF_ROLE_ATTENTION_STREAMS,
    MF_ROLE_ATTENTION_STREAMS_BASE,
    MF_ROLE_ATTENTION_STREAMS_SCALE,
    MF_ROLE_MLP_STREAMS,
    MF_ROLE_MLP_STREAMS_BASE,
    MF_ROLE_MLP_STREAMS_SCALE,
    MF_ROLE_HEAD_STREAMS,
    MF_ROLE_HEAD_STREAMS_BASE,
    MF_ROLE_HEAD_STREAMS_SCALE,
    /* Kimi Delta Attention, beside roles of softmax and linear attention */
    MF_ROLE_KEYED_Q_CONV, /* [channels, width] */
    MF_ROLE_KEYED_K_CONV,
    MF_ROLE_KEYED_V_CONV,
    MF_ROLE_KEYED_F_A,
    MF_ROLE_KEYED_F_B,
    MF_ROLE_KEYED_G_A,
    MF_ROLE_KEYED_G_B,
    /* the MLP of a dense layer, the shared expert, the router */
    /* gate, up, down always follow one another */
    MF_ROLE_GATE,
    MF_ROLE_UP,
    MF_ROLE_DOWN,
    MF_ROLE_SHARED_GATE,
    MF_ROLE_SHARED_UP,
    MF_ROLE_SHARED_DOWN,
    MF_ROLE_SHARED_ROUTER,
    MF_ROLE_ROUTER,
    MF_ROLE_ROUTER_BIAS,
    MF_ROLE_ROUTER_LOGIT_BIAS,
    MF_ROLE_ROUTER_TABLE,
    /* experts, see mf_expert_layout */
    MF_ROLE_EXPERT_GATE,
    MF_ROLE_EXPERT_UP,
    MF_ROLE_EXPERT_DOWN,
    MF_ROLE_EXPERT_GATE_UP,
    MF_ROLE_EXPERT_PAIRS,
    /* [experts, rows] */
    MF_ROLE_EXPERT_GATE_BIAS,
    MF_ROLE_EXPERT_UP_BIAS,
    MF_ROLE_EXPERT_DOWN_BIAS,
    MF_ROLE_EXPERT_PAIRS_BIAS,
    /* of a multi-token-prediction layer: norms of the embedding and of the hidden state, the matrix
     * that both go through, and the norm before the head; where the residual stream is several, a
     * matrix for the embedding, one for each stream, and what joins them (as of the model's head)
     */
    MF_ROLE_DRAFT_EMBED_NORM,
    MF_ROLE_DRAFT_HIDDEN_NORM,
    MF_ROLE_DRAFT_IN,
    MF_ROLE_DRAFT_NORM,
    MF_ROLE_DRAFT_EMBED_IN,
    MF_ROLE_DRAFT_STATE_IN,
    MF_ROLE_DRAFT_STREAMS,
    MF_ROLE_DRAFT_STREAMS_BASE,
    MF_ROLE_DRAFT_STREAMS_SCALE,
    MF_N_ROLES
} mf_role;

#define MF_ALL_EXPERTS UINT32_MAX

/* One tensor: what it is for, and of which layer and expert where that has a meaning. */
typedef struct mf_tensor_id {
    mf_role role;
    uint32_t layer;
    uint32_t expert; /* MF_ALL_EXPERTS but for MF_EXPERTS_EACH */
} mf_tensor_id;

static inline mf_tensor_id mf_tensor_of(mf_role role, uint32_t layer)
{
    return (mf_tensor_id){role, layer, MF_ALL_EXPERTS};
}

/* A tensor and what belongs to it. A form whose scales lie among the values has neither. */
typedef struct mf_stored {
    mf_tensor *data;
    mf_tensor *scales, *biases; /* NULL where there are none; biases only beside scales */
    /* Of data->packing: NULL where zeros are the middle of the codes, and columns in order. */
    mf_tensor *zeros, *index;
} mf_stored;

/* Its tensors, as files number them. */
#define MF_STORED_ARRAYS 5
static inline mf_tensor *mf_stored_array(const mf_stored *s, uint32_t i)
{
    mf_tensor *const arrays[MF_STORED_ARRAYS] = {s->data, s->scales, s->biases, s->zeros, s->index};
    return arrays[i];
}

typedef enum mf_expert_layout {
    MF_EXPERTS_STACKED = 1, /* GATE, UP, DOWN: [experts, rows, columns] each */
    MF_EXPERTS_FUSED = 2,   /* GATE_UP: [experts, 2 * hidden, columns], gate first; DOWN as above */
    MF_EXPERTS_EACH = 3,    /* GATE, UP, DOWN of every expert */
    MF_EXPERTS_PACKED = 4,  /* no tensors: a file of the layer's experts, one after the other */
    MF_EXPERTS_ALIGNED = 5, /* no tensors: each expert is a run of bytes somewhere */
    MF_EXPERTS_PAIRS = 6    /* PAIRS: as FUSED, but rows of gate and up take turns */
} mf_expert_layout;

/* MF_EXPERTS_PACKED: of each expert gate, up and down; of each its codes, scales and biases. */
typedef struct mf_packed_experts {
    uint32_t file; /* in the table */
    uint32_t bits, group;
} mf_packed_experts;

/* MF_EXPERTS_ALIGNED: the forms that experts of a layer have, their matrices gate, up and down
 * without rows and columns. */
#define MF_EXPERT_FORMS 8
typedef struct mf_aligned_experts {
    uint32_t n_forms;
    bool is_paired; /* rows of gate and up take turns in the first; there is no second */
    mf_weight_shape shapes[MF_EXPERT_FORMS][3];
} mf_aligned_experts;

/* Where one of them is: gate, up and down one after the other, of each its arrays, each at a
 * multiple of 64 from the first byte. */
typedef struct mf_expert_run {
    uint32_t file, form; /* in the table; in the forms above */
    uint64_t offset, n_bytes;
} mf_expert_run;

typedef enum mf_hparam_kind {
    MF_HPARAM_ABSENT = 0,
    MF_HPARAM_BOOL,
    MF_HPARAM_NUMBER,
    MF_HPARAM_STRING,
    MF_HPARAM_LIST,
    MF_HPARAM_OTHER
} mf_hparam_kind;

/* A hyper-parameter's value. */
typedef struct mf_hparam_value {
    mf_hparam_kind kind;
    char field[96]; /* as its file calls it, for messages */
    bool is_null;   /* absent, and the file says so: not what it means to leave the field out */
    bool boolean;
    double number;      /* exact up to 2^53 */
    const char *string; /* valid as long as the source */
    uint32_t n_elements;
} mf_hparam_value;

#define MF_HPARAM_WHOLE UINT32_MAX

typedef struct mf_source mf_source;

typedef struct mf_source_ops {
    /* The value called `name`, or its element `index` where it is a list and index is not
     * MF_HPARAM_WHOLE. Names are those of Hugging Face's configs, but for the rotation's, which are
     * rope.type, rope.theta, rope.partial_rotary_factor, rope.factor and so on wherever they stand.
     */
    void (*hparam)(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out);
    bool (*has)(const mf_source *source, mf_tensor_id id);
    /* Marks what it finds as used. MF_ERR_FORMAT names what is missing. */
    mf_status (*find)(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error);
    /* Bits and group follow from shapes; does all else that the files say of them agree? */
    mf_status (*check_affine)(const mf_source *source, const mf_stored *stored, uint32_t bits,
                              uint32_t group, mf_error *error);
    mf_expert_layout (*expert_layout)(const mf_source *source, uint32_t layer);
    /* Only for MF_EXPERTS_PACKED; adds the layer's file to the table. */
    mf_status (*packed_experts)(mf_source *source, uint32_t layer, mf_packed_experts *out,
                                mf_error *error);
    /* Only for MF_EXPERTS_ALIGNED; adds the layer's files to the table. places [n_experts] get that
     * of each expert, checked against its file. */
    mf_status (*aligned_experts)(mf_source *source, uint32_t layer, mf_expert_run *places,
                                 uint32_t n_experts, mf_aligned_experts *out, mf_error *error);
    /* Every tensor is used, is of a part that text models do without, or is of one of the n_extra
     * layers after the n_layers-th; *n_skipped of those are there. Parts are listed in left_out. */
    mf_status (*check_unused)(mf_source *source, uint32_t n_layers, uint32_t n_extra,
                              uint32_t *n_skipped, mf_error *error);
    void (*close)(mf_source *source);
} mf_source_ops;

/* Tensors that are there and not used, as mf_left_out has them. */
#define MF_LEFT_DRAFT "multi-token prediction"
#define MF_LEFT_PARTS 8
typedef struct mf_left_part {
    const char *what; /* static */
    char names[64];
    uint64_t n_tensors, n_bytes;
} mf_left_part;

struct mf_source {
    const mf_source_ops *ops;
    mf_allocator allocator;
    const char *path;         /* what was opened */
    const char *hparam_path;  /* the file that hyper-parameters stand in */
    uint64_t tokenizer_bytes; /* of the file that has the vocabulary; 0: look for it at path */
    const char *form;         /* a form of its own for mf_model_info; NULL: named by its weights */
    bool
        norms_as_published; /* no conversion has added what the family's mathematics adds to them */
    mf_tensor_table table;
    mf_left_part left[MF_LEFT_PARTS];
    uint32_t n_left;
    mf_await await; /* asked before weights are read */
    void *watcher;  /* whoever put operations of its own before those of the form */
};

/* Opens what lies at path, in whichever form. packed_bits as in mf_engine_options:
 * MF_ERR_ARGUMENT where they are given for another form than the packed one. */
mf_status mf_source_open(const mf_allocator *a, const char *path, uint32_t packed_bits,
                         mf_source **out, mf_error *error);
/* Takes NULL inside. */
void mf_source_close(mf_source **source);

/* The file that the tensor is in. */
static inline const char *mf_source_path_of(const mf_source *source, const mf_tensor *tensor)
{
    return source->table.files[tensor->file].path;
}

/* Notes a tensor of a part that is left out; the part's names begin with n_names bytes of `names`.
 */
void mf_source_leave_out(mf_source *source, const mf_tensor *tensor, const char *what,
                         const char *names, size_t n_names);

typedef struct mf_range {
    double min, max;
} mf_range;

/* Typed values. Errors: MF_ERR_FORMAT, naming file and field, for a value of another type or
 * outside the range; for one that is missing where there is no fallback. A whole number may be
 * written as 320.0. */
mf_status mf_hparam_u32(const mf_source *source, const char *name, mf_range range, uint32_t *out,
                        mf_error *error);
mf_status mf_hparam_u32_or(const mf_source *source, const char *name, uint32_t fallback,
                           mf_range range, uint32_t *out, mf_error *error);
mf_status mf_hparam_double_or(const mf_source *source, const char *name, double fallback,
                              mf_range range, double *out, mf_error *error);
mf_status mf_hparam_bool_or(const mf_source *source, const char *name, bool fallback, bool *out,
                            mf_error *error);
/* NULL if absent. */
mf_status mf_hparam_string(const mf_source *source, const char *name, const char **out,
                           mf_error *error);
/* A list's length; MF_HPARAM_WHOLE if absent. */
mf_status mf_hparam_list(const mf_source *source, const char *name, uint32_t *out, mf_error *error);
/* A string of a list; NULL if the element is none. */
const char *mf_hparam_element(const mf_source *source, const char *name, uint32_t index);

/* `name`, or `other` where that alone is there: how a later version of the publisher's code calls
 * it. */
const char *mf_hparam_either(const mf_source *source, const char *name, const char *other);

/* "FILE: field NAME " + the formatted rest. */
mf_status mf_hparam_fail(const mf_source *source, const char *name, mf_status code, mf_error *error,
                         const char *format, ...) __attribute__((format(printf, 5, 6)));

static inline bool mf_source_has(const mf_source *source, mf_role role, uint32_t layer)
{
    return source->ops->has(source, mf_tensor_of(role, layer));
}

/* A layer that predicts further tokens, or the beginning of one. */
static inline bool mf_source_has_draft(const mf_source *source, uint32_t layer)
{
    return mf_source_has(source, MF_ROLE_DRAFT_IN, layer) ||
           mf_source_has(source, MF_ROLE_DRAFT_STATE_IN, layer);
}

#endif
