/* test_published.c - config.json of published models: all of their settings are accepted, and the description has the
 * numbers that the models are known by.
 *
 * The files are from memory, without what every file has (dtype, dropout, token ids). There are no weights: reading
 * must get as far as missing the first tensor. test_spec_published.c has some with all of their tensors. */
#include "model/ckpt.h"
#include "model/spec.h"
#include "tests/support/st_writer.h"
#include "tests/support/test_file.h"

#include "common/strbuf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct published {
	const char *name;
	struct {
		uint32_t context_len, window_first, window_last; /* of the first layer and the last */
		uint32_t k_dim, rope_dims;                       /* of the last layer */
		double mscale, scale;
	} is;
	/* ' for ", #sf for ["sliding_attention", "full_attention"], @ for a list of as many divisors as are wanted */
	const char *config;
};

/* clang-format off */
static const struct published models[] = {
	{"llama2-7b", {4096, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32000,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'hidden_act':'silu',"
	 "'tie_word_embeddings':false,'rope_scaling':null,'pretraining_tp':1}"},
	{"llama2-7b-orig", {4096, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'vocab_size':32000,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'hidden_act':'silu',"
	 "'tie_word_embeddings':false,'max_sequence_length':4096,'rope_scaling':null}"},
	{"codellama-34b", {16384, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':8192,'intermediate_size':22016,'num_hidden_layers':48,'num_attention_heads':64,"
	 "'num_key_value_heads':8,'vocab_size':32000,'max_position_embeddings':16384,'rms_norm_eps':1e-05,'rope_theta':1000000,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'rope_scaling':null,'pretraining_tp':1}"},
	{"tinyllama", {2048, 0, 0, 64, 64, 1, 0.125},
	 "{'model_type':'llama','hidden_size':2048,'intermediate_size':5632,'num_hidden_layers':22,'num_attention_heads':32,"
	 "'num_key_value_heads':4,'vocab_size':32000,'max_position_embeddings':2048,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'rope_scaling':null,'pretraining_tp':1,'attention_bias':false}"},
	{"llama3-8b", {8192, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':128256,'max_position_embeddings':8192,'rms_norm_eps':1e-05,'rope_theta':500000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'rope_scaling':null,'pretraining_tp':1,'attention_bias':false}"},
	{"llama3.1-8b", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':128256,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':500000.0,'hidden_act':'silu','tie_word_embeddings':false,'rope_scaling':{'factor':8.0,"
	 "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
	 "'pretraining_tp':1,'attention_bias':false,'mlp_bias':false}"},
	{"llama3.2-1b", {131072, 0, 0, 64, 64, 1, 0.125},
	 "{'model_type':'llama','hidden_size':2048,'intermediate_size':8192,'num_hidden_layers':16,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':128256,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':500000.0,'hidden_act':'silu','tie_word_embeddings':true,'rope_scaling':{'factor':32.0,"
	 "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
	 "'head_dim':64,'mlp_bias':false,'attention_bias':false}"},
	{"llama3.2-3b", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':28,'num_attention_heads':24,"
	 "'num_key_value_heads':8,'vocab_size':128256,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':500000.0,'hidden_act':'silu','tie_word_embeddings':true,'rope_scaling':{'factor':32.0,"
	 "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
	 "'head_dim':128,'mlp_bias':false,'attention_bias':false}"},
	{"smollm-135m", {2048, 0, 0, 64, 64, 1, 0.125},
	 "{'model_type':'llama','hidden_size':576,'intermediate_size':1536,'num_hidden_layers':30,'num_attention_heads':9,"
	 "'num_key_value_heads':3,'vocab_size':49152,'max_position_embeddings':2048,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':true,'rope_scaling':null,'pretraining_tp':1,'attention_bias':false}"},
	{"smollm2-1.7b", {8192, 0, 0, 64, 64, 1, 0.125},
	 "{'model_type':'llama','hidden_size':2048,'intermediate_size':8192,'num_hidden_layers':24,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':49152,'max_position_embeddings':8192,'rms_norm_eps':1e-05,'rope_theta':130000,"
	 "'hidden_act':'silu','tie_word_embeddings':true,'rope_scaling':null,'rope_interleaved':false,'is_llama_config':true,"
	 "'transformers.js_config':{'kv_cache_dtype':{'q4f16':'float16','fp16':'float16'}}}"},
	{"vicuna-7b-16k", {16384, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'vocab_size':32000,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'hidden_act':'silu',"
	 "'tie_word_embeddings':false,'rope_scaling':{'factor':4.0,'type':'linear'},'max_sequence_length':16384,"
	 "'pretraining_tp':1}"},
	{"deepseek-coder-6.7b", {65536, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32256,'max_position_embeddings':16384,'rms_norm_eps':1e-06,'rope_theta':100000,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'rope_scaling':{'factor':4.0,'type':'linear'},'pretraining_tp':1}"},
	{"yarn-llama2", {65536, 0, 0, 128, 128, 1.277258872, 0.08838834765},
	 "{'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32000,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'hidden_act':'silu',"
	 "'tie_word_embeddings':false,'rope_scaling':{'factor':16.0,'original_max_position_embeddings':4096,'type':'yarn',"
	 "'finetuned':true},'pretraining_tp':1}"},
	{"mistral-v0.1", {32768, 4096, 4096, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mistral','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':32000,'max_position_embeddings':32768,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':4096}"},
	{"mistral-v0.3", {32768, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mistral','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':32768,'max_position_embeddings':32768,'rms_norm_eps':1e-05,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':null}"},
	{"mistral-nemo", {1024000, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mistral','hidden_size':5120,'intermediate_size':14336,'num_hidden_layers':40,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':131072,'max_position_embeddings':1024000,'rms_norm_eps':1e-05,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':null,'head_dim':128}"},
	{"mistral-small3", {32768, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mistral','hidden_size':5120,'intermediate_size':32768,'num_hidden_layers':40,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':131072,'max_position_embeddings':32768,'rms_norm_eps':1e-05,"
	 "'rope_theta':100000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':null,'head_dim':128}"},
	{"zephyr", {32768, 4096, 4096, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mistral','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':32000,'max_position_embeddings':32768,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':4096}"},
	{"mixtral-8x7b", {32768, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mixtral','hidden_size':4096,'intermediate_size':14336,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':32000,'max_position_embeddings':32768,'rms_norm_eps':1e-05,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':null,'num_experts_per_tok':2,"
	 "'num_local_experts':8,'output_router_logits':false,'router_aux_loss_coef':0.02}"},
	{"mixtral-8x22b", {65536, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'mixtral','hidden_size':6144,'intermediate_size':16384,'num_hidden_layers':56,'num_attention_heads':48,"
	 "'num_key_value_heads':8,'vocab_size':32768,'max_position_embeddings':65536,'rms_norm_eps':1e-05,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':null,'num_experts_per_tok':2,"
	 "'num_local_experts':8,'output_router_logits':false,'router_aux_loss_coef':0.001,'router_jitter_noise':0.0}"},
	{"qwen2-0.5b", {131072, 0, 0, 64, 64, 1, 0.125},
	 "{'model_type':'qwen2','hidden_size':896,'intermediate_size':4864,'num_hidden_layers':24,'num_attention_heads':14,"
	 "'num_key_value_heads':2,'vocab_size':151936,'max_position_embeddings':131072,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':true,'sliding_window':131072,'max_window_layers':24,"
	 "'use_sliding_window':false}"},
	{"qwen2.5-7b", {32768, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen2','hidden_size':3584,'intermediate_size':18944,'num_hidden_layers':28,'num_attention_heads':28,"
	 "'num_key_value_heads':4,'vocab_size':152064,'max_position_embeddings':32768,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':131072,'max_window_layers':28,"
	 "'use_sliding_window':false}"},
	{"qwen2.5-yarn", {131072, 0, 0, 128, 128, 1.138629436, 0.08838834765},
	 "{'model_type':'qwen2','hidden_size':5120,'intermediate_size':27648,'num_hidden_layers':64,'num_attention_heads':40,"
	 "'num_key_value_heads':8,'vocab_size':152064,'max_position_embeddings':32768,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':131072,'max_window_layers':64,"
	 "'use_sliding_window':false,'rope_scaling':{'factor':4.0,'original_max_position_embeddings':32768,'type':'yarn'}}"},
	{"qwq-32b", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen2','hidden_size':5120,'intermediate_size':27648,'num_hidden_layers':64,'num_attention_heads':40,"
	 "'num_key_value_heads':8,'vocab_size':152064,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':32768,'max_window_layers':64,"
	 "'use_sliding_window':false}"},
	{"r1-distill-qwen-1.5b", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen2','hidden_size':1536,'intermediate_size':8960,'num_hidden_layers':28,'num_attention_heads':12,"
	 "'num_key_value_heads':2,'vocab_size':151936,'max_position_embeddings':131072,'rms_norm_eps':1e-06,'rope_theta':10000,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'sliding_window':4096,'max_window_layers':21,"
	 "'use_sliding_window':false,'use_mrope':false}"},
	{"qwen3-0.6b", {40960, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen3','hidden_size':1024,'intermediate_size':3072,'num_hidden_layers':28,'num_attention_heads':16,"
	 "'num_key_value_heads':8,'vocab_size':151936,'max_position_embeddings':40960,'rms_norm_eps':1e-06,'rope_theta':1000000,"
	 "'hidden_act':'silu','tie_word_embeddings':true,'head_dim':128,'sliding_window':null,'max_window_layers':28,"
	 "'use_sliding_window':false,'attention_bias':false,'rope_scaling':null}"},
	{"qwen3-32b", {40960, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen3','hidden_size':5120,'intermediate_size':25600,'num_hidden_layers':64,'num_attention_heads':64,"
	 "'num_key_value_heads':8,'vocab_size':151936,'max_position_embeddings':40960,'rms_norm_eps':1e-06,'rope_theta':1000000,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'head_dim':128,'sliding_window':null,'max_window_layers':64,"
	 "'use_sliding_window':false,'attention_bias':false,'rope_scaling':null}"},
	{"r1-0528-qwen3-8b", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen3','hidden_size':4096,'intermediate_size':12288,'num_hidden_layers':36,'num_attention_heads':32,"
	 "'num_key_value_heads':8,'vocab_size':151936,'max_position_embeddings':131072,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000,'hidden_act':'silu','tie_word_embeddings':false,'head_dim':128,'sliding_window':null,"
	 "'max_window_layers':36,'use_sliding_window':false,'attention_bias':false,'rope_scaling':{'rope_type':'yarn',"
	 "'factor':4.0,'original_max_position_embeddings':32768,'attn_factor':0.8782488562869419}}"},
	{"qwen3-30b-a3b", {40960, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen3_moe','hidden_size':2048,'intermediate_size':6144,'num_hidden_layers':48,'num_attention_heads':32,"
	 "'num_key_value_heads':4,'vocab_size':151936,'max_position_embeddings':40960,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'decoder_sparse_step':1,'mlp_only_layers':[],"
	 "'norm_topk_prob':true,'num_experts':128,'num_experts_per_tok':8,'output_router_logits':false,"
	 "'router_aux_loss_coef':0.001,'head_dim':128,'attention_bias':false,'rope_scaling':null,'sliding_window':null,"
	 "'use_sliding_window':false,'moe_intermediate_size':768,'max_window_layers':48}"},
	{"qwen3-coder-30b", {262144, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen3_moe','hidden_size':2048,'intermediate_size':5472,'num_hidden_layers':48,'num_attention_heads':32,"
	 "'num_key_value_heads':4,'vocab_size':151936,'max_position_embeddings':262144,'rms_norm_eps':1e-06,"
	 "'rope_theta':10000000,'hidden_act':'silu','tie_word_embeddings':false,'decoder_sparse_step':1,'mlp_only_layers':[],"
	 "'norm_topk_prob':true,'num_experts':128,'num_experts_per_tok':8,'output_router_logits':false,"
	 "'router_aux_loss_coef':0.001,'head_dim':128,'attention_bias':false,'rope_scaling':null,'sliding_window':null,"
	 "'use_sliding_window':false,'qkv_bias':false,'shared_expert_intermediate_size':0,'use_qk_norm':true,"
	 "'moe_intermediate_size':768,'max_window_layers':28}"},
	{"qwen3-next-80b", {262144, 0, 0, 256, 64, 1, 0.0625},
	 "{'model_type':'qwen3_next','hidden_size':2048,'intermediate_size':5120,'num_hidden_layers':48,"
	 "'num_attention_heads':16,'num_key_value_heads':2,'vocab_size':151936,'max_position_embeddings':262144,"
	 "'rms_norm_eps':1e-06,'rope_theta':10000000,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'decoder_sparse_step':1,'full_attention_interval':4,'head_dim':256,'linear_conv_kernel_dim':4,"
	 "'linear_key_head_dim':128,'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128,"
	 "'mlp_only_layers':[],'moe_intermediate_size':512,'norm_topk_prob':true,'num_experts':512,'num_experts_per_tok':10,"
	 "'output_router_logits':false,'partial_rotary_factor':0.25,'rope_scaling':null,'router_aux_loss_coef':0.001,"
	 "'shared_expert_intermediate_size':512,'use_sliding_window':false}"},
	{"gemma2-2b", {8192, 4096, 0, 256, 256, 1, 0.0625},
	 "{'model_type':'gemma2','hidden_size':2304,'intermediate_size':9216,'num_hidden_layers':26,'num_attention_heads':8,"
	 "'num_key_value_heads':4,'vocab_size':256000,'max_position_embeddings':8192,'rms_norm_eps':1e-06,'rope_theta':10000.0,"
	 "'hidden_act':'gelu_pytorch_tanh','hidden_activation':'gelu_pytorch_tanh','cache_implementation':'hybrid',"
	 "'attn_logit_softcapping':50.0,'final_logit_softcapping':30.0,'sliding_window':4096,'attention_bias':false,"
	 "'head_dim':256,'query_pre_attn_scalar':256}"},
	{"gemma2-9b", {8192, 4096, 0, 256, 256, 1, 0.0625},
	 "{'model_type':'gemma2','hidden_size':3584,'intermediate_size':14336,'num_hidden_layers':42,'num_attention_heads':16,"
	 "'num_key_value_heads':8,'vocab_size':256000,'max_position_embeddings':8192,'rms_norm_eps':1e-06,'rope_theta':10000.0,"
	 "'hidden_act':'gelu_pytorch_tanh','hidden_activation':'gelu_pytorch_tanh','cache_implementation':'hybrid',"
	 "'attn_logit_softcapping':50.0,'final_logit_softcapping':30.0,'sliding_window':4096,'attention_bias':false,"
	 "'head_dim':256,'query_pre_attn_scalar':256,'sliding_window_size':4096}"},
	{"gemma2-27b", {8192, 4096, 0, 128, 128, 1, 0.08333333333},
	 "{'model_type':'gemma2','hidden_size':4608,'intermediate_size':36864,'num_hidden_layers':46,'num_attention_heads':32,"
	 "'num_key_value_heads':16,'vocab_size':256000,'max_position_embeddings':8192,'rms_norm_eps':1e-06,'rope_theta':10000.0,"
	 "'hidden_act':'gelu_pytorch_tanh','hidden_activation':'gelu_pytorch_tanh','cache_implementation':'hybrid',"
	 "'attn_logit_softcapping':50.0,'final_logit_softcapping':30.0,'sliding_window':4096,'attention_bias':false,"
	 "'head_dim':128,'query_pre_attn_scalar':144,'_attn_implementation':'eager'}"},
	{"gemma3-1b", {32768, 512, 512, 256, 256, 1, 0.0625},
	 "{'model_type':'gemma3_text','hidden_size':1152,'intermediate_size':6912,'num_hidden_layers':26,"
	 "'num_attention_heads':4,'num_key_value_heads':1,'vocab_size':262144,'max_position_embeddings':32768,"
	 "'rms_norm_eps':1e-06,'rope_theta':1000000,'hidden_activation':'gelu_pytorch_tanh','attn_logit_softcapping':null,"
	 "'final_logit_softcapping':null,'attention_bias':false,'cache_implementation':'hybrid','head_dim':256,"
	 "'query_pre_attn_scalar':256,'rope_local_base_freq':10000,'rope_scaling':null,'sliding_window':512,"
	 "'sliding_window_pattern':6}"},
	{"gemma3-270m", {32768, 512, 0, 256, 256, 1, 0.0625},
	 "{'model_type':'gemma3_text','hidden_size':640,'intermediate_size':2048,'num_hidden_layers':18,'num_attention_heads':4,"
	 "'num_key_value_heads':1,'vocab_size':262144,'max_position_embeddings':32768,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_activation':'gelu_pytorch_tanh','attn_logit_softcapping':null,"
	 "'final_logit_softcapping':null,'attention_bias':false,'head_dim':256,'query_pre_attn_scalar':256,"
	 "'rope_local_base_freq':10000.0,'rope_scaling':null,'sliding_window':512,'_sliding_window_pattern':6,"
	 "'use_bidirectional_attention':false,'layer_types':#sssssfsssssfsssssf}"},
	{"gemma3-4b", {131072, 1024, 1024, 256, 256, 1, 0.0625},
	 "{'boi_token_index':255999,'eoi_token_index':256000,'image_token_index':262144,'mm_tokens_per_image':256,"
	 "'model_type':'gemma3','text_config':{'hidden_size':2560,'intermediate_size':10240,'model_type':'gemma3_text',"
	 "'num_hidden_layers':34,'rope_scaling':{'factor':8.0,'rope_type':'linear'},'sliding_window':1024},"
	 "'vision_config':{'model_type':'siglip_vision_model'}}"},
	{"gemma3-12b", {131072, 1024, 0, 256, 256, 1, 0.0625},
	 "{'boi_token_index':255999,'eoi_token_index':256000,'image_token_index':262144,'mm_tokens_per_image':256,"
	 "'model_type':'gemma3','text_config':{'hidden_size':3840,'intermediate_size':15360,'model_type':'gemma3_text',"
	 "'num_attention_heads':16,'num_hidden_layers':48,'num_key_value_heads':8,'rope_scaling':{'factor':8.0,"
	 "'rope_type':'linear'},'sliding_window':1024},'vision_config':{'model_type':'siglip_vision_model'}}"},
	{"gemma3-27b", {131072, 1024, 1024, 128, 128, 1, 0.07715167498},
	 "{'boi_token_index':255999,'eoi_token_index':256000,'image_token_index':262144,'mm_tokens_per_image':256,"
	 "'model_type':'gemma3','text_config':{'head_dim':128,'hidden_size':5376,'intermediate_size':21504,"
	 "'model_type':'gemma3_text','num_attention_heads':32,'num_hidden_layers':62,'num_key_value_heads':16,"
	 "'query_pre_attn_scalar':168,'rope_scaling':{'factor':8.0,'rope_type':'linear'},'sliding_window':1024},"
	 "'vision_config':{'model_type':'siglip_vision_model'}}"},
	{"phi3-mini-4k", {4096, 2047, 2047, 96, 96, 1, 0.1020620726},
	 "{'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32064,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':null,'sliding_window':2047,'attention_bias':false}"},
	{"phi3-mini-128k", {131072, 0, 0, 96, 96, 1.190238071, 0.1020620726},
	 "{'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32064,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':10000.0,'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':{'long_factor':@,'short_factor':@,'type':'longrope'},"
	 "'sliding_window':262144,'attention_bias':false}"},
	{"phi3-mini-128k-su", {131072, 0, 0, 96, 96, 1.190238071, 0.1020620726},
	 "{'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32064,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':10000.0,'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':{'long_factor':@,'short_factor':@,'type':'su'},"
	 "'sliding_window':262144}"},
	{"phi3-medium-4k", {4096, 2047, 2047, 128, 128, 1, 0.08838834765},
	 "{'model_type':'phi3','hidden_size':5120,'intermediate_size':17920,'num_hidden_layers':40,'num_attention_heads':40,"
	 "'num_key_value_heads':10,'vocab_size':32064,'max_position_embeddings':4096,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':null,'sliding_window':2047}"},
	{"phi3.5-mini", {131072, 0, 0, 96, 96, 1.190238071, 0.1020620726},
	 "{'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':32,'num_attention_heads':32,"
	 "'num_key_value_heads':32,'vocab_size':32064,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':10000.0,'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':{'long_factor':@,'short_factor':@,'type':'longrope'},"
	 "'sliding_window':262144,'attention_bias':false}"},
	{"phi4", {16384, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'phi3','hidden_size':5120,'intermediate_size':17920,'num_hidden_layers':40,'num_attention_heads':40,"
	 "'num_key_value_heads':10,'vocab_size':100352,'max_position_embeddings':16384,'rms_norm_eps':1e-05,'rope_theta':250000,"
	 "'hidden_act':'silu','tie_word_embeddings':false,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':16384,'rope_scaling':null,'sliding_window':null,'attention_bias':false}"},
	{"phi4-mini", {131072, 0, 0, 128, 96, 1.190238071, 0.08838834765},
	 "{'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'num_hidden_layers':32,'num_attention_heads':24,"
	 "'num_key_value_heads':8,'vocab_size':200064,'max_position_embeddings':131072,'rms_norm_eps':1e-05,"
	 "'rope_theta':10000.0,'hidden_act':'silu','tie_word_embeddings':true,'embd_pdrop':0.0,'resid_pdrop':0.0,"
	 "'original_max_position_embeddings':4096,'rope_scaling':{'long_factor':@,'short_factor':@,'type':'longrope'},"
	 "'sliding_window':262144,'attention_bias':false,'full_attn_mod':1,'interpolate_factor':1,'lm_head_bias':false,"
	 "'mlp_bias':false,'partial_rotary_factor':0.75}"},
	{"DeepSeek-V2-Lite", {163840, 0, 0, 192, 64, 1, 0.1147213868},
	 "{'model_type':'deepseek_v2','hidden_size':2048,'intermediate_size':10944,'num_hidden_layers':27,"
	 "'num_attention_heads':16,'num_key_value_heads':16,'vocab_size':102400,'max_position_embeddings':163840,"
	 "'rms_norm_eps':1e-06,'rope_theta':10000,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'aux_loss_alpha':0.001,'ep_size':1,'moe_layer_freq':1,'pretraining_tp':1,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
	 "'v_head_dim':128,'kv_lora_rank':512,'scoring_func':'softmax','seq_aux':true,'first_k_dense_replace':1,"
	 "'moe_intermediate_size':1408,'n_group':1,'n_routed_experts':64,'n_shared_experts':2,'norm_topk_prob':false,"
	 "'num_experts_per_tok':6,'q_lora_rank':null,'routed_scaling_factor':1.0,'topk_group':1,'topk_method':'greedy',"
	 "'rope_scaling':{'beta_fast':32,'beta_slow':1,'factor':40,'mscale':0.707,'mscale_all_dim':0.707,"
	 "'original_max_position_embeddings':4096,'type':'yarn'}}"},
	{"DeepSeek-V2", {163840, 0, 0, 192, 64, 1, 0.1147213868},
	 "{'model_type':'deepseek_v2','hidden_size':5120,'intermediate_size':12288,'num_hidden_layers':60,"
	 "'num_attention_heads':128,'num_key_value_heads':128,'vocab_size':102400,'max_position_embeddings':163840,"
	 "'rms_norm_eps':1e-06,'rope_theta':10000,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'aux_loss_alpha':0.001,'ep_size':1,'moe_layer_freq':1,'pretraining_tp':1,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
	 "'v_head_dim':128,'kv_lora_rank':512,'scoring_func':'softmax','seq_aux':true,'first_k_dense_replace':1,"
	 "'moe_intermediate_size':1536,'n_group':8,'n_routed_experts':160,'n_shared_experts':2,'norm_topk_prob':false,"
	 "'num_experts_per_tok':6,'q_lora_rank':1536,'routed_scaling_factor':16.0,'topk_group':3,"
	 "'topk_method':'group_limited_greedy','rope_scaling':{'beta_fast':32,'beta_slow':1,'factor':40,'mscale':0.707,"
	 "'mscale_all_dim':0.707,'original_max_position_embeddings':4096,'type':'yarn'}}"},
	{"DeepSeek-V3, R1", {163840, 0, 0, 192, 64, 1, 0.1352337789},
	 "{'model_type':'deepseek_v3','hidden_size':7168,'intermediate_size':18432,'num_hidden_layers':61,"
	 "'num_attention_heads':128,'num_key_value_heads':128,'vocab_size':129280,'max_position_embeddings':163840,"
	 "'rms_norm_eps':1e-06,'rope_theta':10000,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'aux_loss_alpha':0.001,'ep_size':1,'moe_layer_freq':1,'pretraining_tp':1,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
	 "'v_head_dim':128,'kv_lora_rank':512,'scoring_func':'sigmoid','seq_aux':true,'first_k_dense_replace':3,"
	 "'moe_intermediate_size':2048,'n_group':8,'n_routed_experts':256,'n_shared_experts':1,'norm_topk_prob':true,"
	 "'num_experts_per_tok':8,'num_nextn_predict_layers':1,'q_lora_rank':1536,'routed_scaling_factor':2.5,'topk_group':4,"
	 "'topk_method':'noaux_tc','rope_scaling':{'beta_fast':32,'beta_slow':1,'factor':40,'mscale':1.0,'mscale_all_dim':1.0,"
	 "'original_max_position_embeddings':4096,'type':'yarn'},'quantization_config':{'activation_scheme':'dynamic',"
	 "'fmt':'e4m3','quant_method':'fp8','weight_block_size':[128,128]}}"},
	{"DeepSeek-V3.1", {163840, 0, 0, 192, 64, 1, 0.1352337789},
	 "{'model_type':'deepseek_v3','hidden_size':7168,'intermediate_size':18432,'num_hidden_layers':61,"
	 "'num_attention_heads':128,'num_key_value_heads':128,'vocab_size':129280,'max_position_embeddings':163840,"
	 "'rms_norm_eps':1e-06,'rope_theta':10000,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'aux_loss_alpha':0.001,'ep_size':1,'moe_layer_freq':1,'pretraining_tp':1,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
	 "'v_head_dim':128,'kv_lora_rank':512,'scoring_func':'sigmoid','seq_aux':true,'first_k_dense_replace':3,"
	 "'moe_intermediate_size':2048,'n_group':8,'n_routed_experts':256,'n_shared_experts':1,'norm_topk_prob':true,"
	 "'num_experts_per_tok':8,'num_nextn_predict_layers':1,'q_lora_rank':1536,'routed_scaling_factor':2.5,'topk_group':4,"
	 "'topk_method':'noaux_tc','rope_scaling':{'beta_fast':32,'beta_slow':1,'factor':40,'mscale':1.0,'mscale_all_dim':1.0,"
	 "'original_max_position_embeddings':4096,'type':'yarn'},'quantization_config':{'activation_scheme':'dynamic',"
	 "'fmt':'e4m3','quant_method':'fp8','scale_fmt':'ue8m0','weight_block_size':[128,128]}}"},
	{"moonlight-16b", {8192, 0, 0, 192, 64, 1, 0.07216878365},
	 "{'model_type':'deepseek_v3','hidden_size':2048,'intermediate_size':11264,'num_hidden_layers':27,"
	 "'num_attention_heads':16,'num_key_value_heads':16,'vocab_size':163840,'max_position_embeddings':8192,"
	 "'rms_norm_eps':1e-05,'rope_theta':50000.0,'hidden_act':'silu','tie_word_embeddings':false,'attention_bias':false,"
	 "'aux_loss_alpha':0.001,'ep_size':1,'moe_layer_freq':1,'pretraining_tp':1,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
	 "'v_head_dim':128,'kv_lora_rank':512,'scoring_func':'sigmoid','seq_aux':true,'first_k_dense_replace':1,"
	 "'moe_intermediate_size':1408,'n_group':1,'n_routed_experts':64,'n_shared_experts':2,'norm_topk_prob':true,"
	 "'num_experts_per_tok':6,'num_nextn_predict_layers':0,'q_lora_rank':null,'routed_scaling_factor':2.446,'topk_group':1,"
	 "'topk_method':'noaux_tc','rope_scaling':null}"},
	{"gpt-oss-20b", {131072, 128, 0, 64, 64, 1.34657359, 0.125},
	 "{'attention_bias':true,'experts_per_token':4,'head_dim':64,'hidden_act':'silu','hidden_size':2880,"
	 "'initial_context_length':4096,'intermediate_size':2880,'layer_types':#sfsfsfsfsfsfsfsfsfsfsfsf,"
	 "'max_position_embeddings':131072,'model_type':'gpt_oss','num_attention_heads':64,'num_experts_per_tok':4,"
	 "'num_hidden_layers':24,'num_key_value_heads':8,'num_local_experts':32,'output_router_logits':false,"
	 "'quantization_config':{'modules_to_not_convert':['model.layers.*.self_attn','model.layers.*.mlp.router',"
	 "'model.embed_tokens','lm_head'],'quant_method':'mxfp4'},'rms_norm_eps':1e-05,'rope_scaling':{'beta_fast':32.0,"
	 "'beta_slow':1.0,'factor':32.0,'original_max_position_embeddings':4096,'rope_type':'yarn','truncate':false},"
	 "'rope_theta':150000,'router_aux_loss_coef':0.9,'sliding_window':128,'swiglu_limit':7.0,'tie_word_embeddings':false,"
	 "'vocab_size':201088}"},
	{"gpt-oss-120b", {131072, 128, 0, 64, 64, 1.34657359, 0.125},
	 "{'attention_bias':true,'experts_per_token':4,'head_dim':64,'hidden_act':'silu','hidden_size':2880,"
	 "'initial_context_length':4096,'intermediate_size':2880,'layer_types':#sfsfsfsfsfsfsfsfsfsfsfsfsfsfsfsfsfsf,"
	 "'max_position_embeddings':131072,'model_type':'gpt_oss','num_attention_heads':64,'num_experts_per_tok':4,"
	 "'num_hidden_layers':36,'num_key_value_heads':8,'num_local_experts':128,'output_router_logits':false,"
	 "'quantization_config':{'modules_to_not_convert':['model.layers.*.self_attn','model.layers.*.mlp.router',"
	 "'model.embed_tokens','lm_head'],'quant_method':'mxfp4'},'rms_norm_eps':1e-05,'rope_scaling':{'beta_fast':32.0,"
	 "'beta_slow':1.0,'factor':32.0,'original_max_position_embeddings':4096,'rope_type':'yarn','truncate':false},"
	 "'rope_theta':150000,'router_aux_loss_coef':0.9,'sliding_window':128,'swiglu_limit':7.0,'tie_word_embeddings':false,"
	 "'vocab_size':201088}"},
	{"smollm3", {65536, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'smollm3','hidden_size':2048,'intermediate_size':11008,'num_hidden_layers':36,'num_attention_heads':16,"
	 "'num_key_value_heads':4,'vocab_size':128256,'max_position_embeddings':65536,'rms_norm_eps':1e-06,"
	 "'rope_theta':5000000.0,'hidden_act':'silu','attention_bias':false,'layer_types':#ffffffffffffffffffffffffffffffffffff,"
	 "'max_window_layers':28,'mlp_bias':false,'no_rope_layer_interval':4,'no_rope_layers':[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,"
	 "1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0],'pretraining_tp':2,'rope_scaling':null,'sliding_window':null,"
	 "'use_sliding_window':false}"},
	{"qwen3.5-27b", {262144, 0, 0, 256, 64, 1, 0.0625},
	 "{'image_token_id':248056,'model_type':'qwen3_5','text_config':{'attention_bias':false,'attn_output_gate':true,"
	 "'full_attention_interval':4,'head_dim':256,'hidden_act':'silu',"
	 "'layer_types':#lllflllflllflllflllflllflllflllflllflllflllflllflllflllflllflllf,'linear_conv_kernel_dim':4,"
	 "'linear_key_head_dim':128,'linear_num_key_heads':16,'linear_value_head_dim':128,'max_position_embeddings':262144,"
	 "'mlp_only_layers':[],'mtp_num_hidden_layers':1,'mtp_use_dedicated_embeddings':false,'rms_norm_eps':1e-06,"
	 "'vocab_size':248320,'mamba_ssm_dtype':'float32','rope_parameters':{'mrope_interleaved':true,'mrope_section':[11,11,"
	 "10],'rope_type':'default','rope_theta':10000000,'partial_rotary_factor':0.25},'hidden_size':5120,"
	 "'intermediate_size':17408,'num_attention_heads':24,'num_key_value_heads':4,'linear_num_value_heads':48,"
	 "'model_type':'qwen3_5_text','num_hidden_layers':64},'tie_word_embeddings':false,'video_token_id':248057,"
	 "'vision_config':{'model_type':'qwen3_5'},'vision_end_token_id':248054,'vision_start_token_id':248053}"},
	{"qwen3.5-397b", {262144, 0, 0, 256, 64, 1, 0.0625},
	 "{'image_token_id':248056,'model_type':'qwen3_5_moe','text_config':{'attention_bias':false,'attn_output_gate':true,"
	 "'full_attention_interval':4,'head_dim':256,'hidden_act':'silu',"
	 "'layer_types':#lllflllflllflllflllflllflllflllflllflllflllflllflllflllflllf,'linear_conv_kernel_dim':4,"
	 "'linear_key_head_dim':128,'linear_num_key_heads':16,'linear_value_head_dim':128,'max_position_embeddings':262144,"
	 "'mlp_only_layers':[],'mtp_num_hidden_layers':1,'mtp_use_dedicated_embeddings':false,'rms_norm_eps':1e-06,"
	 "'vocab_size':248320,'mamba_ssm_dtype':'float32','rope_parameters':{'mrope_interleaved':true,'mrope_section':[11,11,"
	 "10],'rope_type':'default','rope_theta':10000000,'partial_rotary_factor':0.25},'hidden_size':4096,"
	 "'moe_intermediate_size':1024,'num_attention_heads':32,'num_key_value_heads':2,'linear_num_value_heads':64,"
	 "'num_experts':512,'num_experts_per_tok':10,'shared_expert_intermediate_size':1024,'router_aux_loss_coef':0.001,"
	 "'output_router_logits':false,'model_type':'qwen3_5_moe_text','num_hidden_layers':60},'tie_word_embeddings':false,"
	 "'video_token_id':248057,'vision_config':{'model_type':'qwen3_5_moe'},'vision_end_token_id':248054,"
	 "'vision_start_token_id':248053}"},
	{"qwen1.5-moe", {8192, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen2_moe','hidden_size':2048,'intermediate_size':5632,'num_hidden_layers':24,'num_attention_heads':16,"
	 "'num_key_value_heads':16,'vocab_size':151936,'max_position_embeddings':8192,'rms_norm_eps':1e-06,"
	 "'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'decoder_sparse_step':1,'max_window_layers':21,"
	 "'moe_intermediate_size':1408,'norm_topk_prob':false,'num_experts':60,'num_experts_per_tok':4,"
	 "'output_router_logits':false,'router_aux_loss_coef':0.001,'shared_expert_intermediate_size':5632,"
	 "'sliding_window':32768,'use_sliding_window':false}"},
	{"qwen2-57b", {32768, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'model_type':'qwen2_moe','hidden_size':3584,'intermediate_size':18944,'num_hidden_layers':28,"
	 "'num_attention_heads':28,'num_key_value_heads':4,'vocab_size':151936,'max_position_embeddings':32768,"
	 "'rms_norm_eps':1e-06,'rope_theta':1000000.0,'hidden_act':'silu','tie_word_embeddings':false,'decoder_sparse_step':1,"
	 "'max_window_layers':28,'moe_intermediate_size':2560,'norm_topk_prob':false,'num_experts':64,'num_experts_per_tok':8,"
	 "'output_router_logits':false,'router_aux_loss_coef':0.001,'shared_expert_intermediate_size':20480,"
	 "'sliding_window':65536,'use_sliding_window':false,'mlp_only_layers':[]}"},
	{"mistral-small3.1", {131072, 0, 0, 128, 128, 1, 0.08838834765},
	 "{'image_token_index':10,'model_type':'mistral3','multimodal_projector_bias':false,'projector_hidden_act':'gelu',"
	 "'spatial_merge_size':2,'text_config':{'head_dim':128,'hidden_act':'silu','hidden_size':5120,'intermediate_size':32768,"
	 "'max_position_embeddings':131072,'model_type':'mistral','num_attention_heads':32,'num_hidden_layers':40,"
	 "'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_theta':1000000000.0,'sliding_window':null,'vocab_size':131072},"
	 "'vision_config':{'model_type':'pixtral'},'vision_feature_layer':-1}"},
};

static const struct {
	const char *name, *config, *words;
} refused[] = {
	{"qwen2.5-7b-1m",
	 "{'model_type':'qwen2','hidden_size':3584,'intermediate_size':18944,'num_hidden_layers':28,'num_attention_heads':28,"
	 "'num_key_value_heads':4,'vocab_size':152064,'max_position_embeddings':1010000,'rms_norm_eps':1e-05,'rope_theta':10000000.0,"
	 "'dual_chunk_attention_config':{'chunk_size':262144,'local_size':8192,'original_max_position_embeddings':262144}}",
	 "dual_chunk_attention_config is {"},
	{"llama-3.2-11b-vision",
	 "{'model_type':'mllama','text_config':{'model_type':'mllama_text_model','hidden_size':4096}}",
	 "model_type \"mllama_text_model\" is not a supported architecture"},
};
/* clang-format on */

static void put_list(struct strbuf *out, const char *word, const char **end, uint32_t n_divisors)
{
	bool first = true;

	strbuf_putc(out, '[');
	if (*word == '@')
		for (uint32_t i = 0; i < n_divisors; i++) strbuf_printf(out, "%s%u.5", i ? "," : "", i + 1);
	for (word++; *word == 's' || *word == 'f' || *word == 'l'; word++, first = false)
		strbuf_printf(out, "%s\"%s_attention\"", first ? "" : ",",
			      *word == 's'   ? "sliding"
			      : *word == 'f' ? "full"
					     : "linear");
	strbuf_putc(out, ']');
	*end = word;
}

/* A folder of the settings, and of one tensor that no model has. */
static struct ckpt *open_folder(const char *config, uint32_t n_divisors)
{
	char *folder = test_file_temp("config"), *config_path, *tensors_path;
	struct st_writer w;
	struct strbuf text;
	struct errbuf err;
	struct ckpt *c;
	uint8_t *bytes;
	size_t len;

	mkdir(folder, 0700);
	config_path = test_file_temp("config/config.json");
	tensors_path = test_file_temp("config/model.safetensors");
	strbuf_init(&text, MIB);
	while (*config)
		if (*config == '#' || *config == '@')
			put_list(&text, config, &config, n_divisors);
		else
			strbuf_putc(&text, *config == '\'' ? '"' : *config), config++;
	test_file_write(config_path, text.data, text.len);
	st_writer_init(&w);
	st_writer_tensor(&w, "x", "F32", 1, (const uint64_t[]){1}, NULL, 4);
	bytes = st_writer_build(&w, &len);
	test_file_write(tensors_path, bytes, len);
	if (ckpt_open(&c, folder, &err) != ST_OK) fail_msg("%s", err.text);
	unlink(config_path);
	unlink(tensors_path);
	rmdir(folder);
	free(bytes);
	st_writer_release(&w);
	strbuf_release(&text);
	free(config_path);
	free(tensors_path);
	free(folder);
	return c;
}

static void same(const char *name, const char *what, double found, double expected)
{
	if (fabs(found - expected) > 1e-8 * fabs(expected))
		fail_msg("%s: %s is %.10g; expected %.10g", name, what, found, expected);
}

static void settings_are_accepted_and_understood(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(models); i++) {
		const struct published *m = &models[i];
		struct ckpt *c = open_folder(m->config, m->is.rope_dims / 2);
		const struct spec_layer *last;
		struct errbuf err;
		struct spec s;

		assert_int_not_equal(spec_read(&s, c, NULL, &err), ST_OK);
		if (!strstr(err.text, "tensor model.embed_tokens.weight is missing"))
			fail_msg("%s: %s", m->name, err.text);
		last = &s.layers[s.n_layers - 1];
		same(m->name, "context_len", s.context_len, m->is.context_len);
		same(m->name, "the first window", s.layers[0].window, m->is.window_first);
		same(m->name, "the last window", last->window, m->is.window_last);
		same(m->name, "k_dim", last->k_dim, m->is.k_dim);
		same(m->name, "rope.dims", s.ropes[0].dims, m->is.rope_dims);
		same(m->name, "rope.mscale", s.ropes[0].mscale, m->is.mscale);
		same(m->name, "scale", last->scale, m->is.scale);
		spec_release(&s);
		ckpt_close(c);
	}
}

static void others_are_refused_by_name(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct ckpt *c = open_folder(refused[i].config, 0);
		struct errbuf err;
		struct spec s;

		assert_int_equal(spec_read(&s, c, NULL, &err), ST_UNSUPPORTED);
		if (!strstr(err.text, refused[i].words)) fail_msg("%s: %s", refused[i].name, err.text);
		spec_release(&s);
		ckpt_close(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_are_accepted_and_understood),
		cmocka_unit_test(others_are_refused_by_name),
	};

	return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
